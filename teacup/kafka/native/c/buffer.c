#include "buffer.h"

#include <stdlib.h>

int tc_grow(tc_buffer *buffer, int64_t bytes) {
        if (bytes < 0 || bytes > INT64_MAX / 4 - buffer->size) return -1;
        int64_t needed = buffer->size + bytes;
        int64_t room = buffer->room + buffer->room / 2;
        if (room < needed) room = needed;
        if (room < 64) room = 64;
        if ((uint64_t)room > SIZE_MAX) return -1;
        char *data = realloc(buffer->data, (size_t)room);
        if (!data) return -1;
        buffer->data = data;
        buffer->room = room;
        return 0;
}

void tc_shrink(tc_buffer *buffer) {
        if (!buffer->data || buffer->size == 0 || buffer->size == buffer->room) return;
        char *data = realloc(buffer->data, (size_t)buffer->size);
        if (data) *buffer = (tc_buffer){data, buffer->size, buffer->size};
}

void tc_free(tc_buffer *buffer) {
        free(buffer->data);
        *buffer = (tc_buffer){0};
}
