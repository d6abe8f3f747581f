/* A buffer that grows.
 *
 * Appending is in two steps, so that running out of memory never leaves half a row: first `tc_reserve` everywhere, which
 * may fail, then append, which cannot. Whoever holds the buffer owns `data` (malloc), and frees it with `tc_free`.
 */
#ifndef TC_BUFFER_H
#define TC_BUFFER_H

#include <stdint.h>
#include <string.h>

typedef struct {
        char *data; /* NULL until something was reserved */
        int64_t size, room;
} tc_buffer;

/* Make room for `bytes` (0 or more) behind the end; -1 where there is no memory, and nothing has changed then. */
int tc_grow(tc_buffer *buffer, int64_t bytes);
static inline int tc_reserve(tc_buffer *buffer, int64_t bytes) {
        return buffer->data && bytes >= 0 && bytes <= buffer->room - buffer->size ? 0 : tc_grow(buffer, bytes);
}

/* Give back what room is left over. */
void tc_shrink(tc_buffer *buffer);

void tc_free(tc_buffer *buffer);

/* Append what room was reserved for. `from` may be NULL where there are no bytes. */
static inline void tc_append(tc_buffer *buffer, const void *from, int64_t bytes) {
        if (bytes) memcpy(buffer->data + buffer->size, from, (size_t)bytes);
        buffer->size += bytes;
}

static inline void tc_append_int8(tc_buffer *buffer, int8_t value) { tc_append(buffer, &value, sizeof value); }
static inline void tc_append_int32(tc_buffer *buffer, int32_t value) { tc_append(buffer, &value, sizeof value); }
static inline void tc_append_int64(tc_buffer *buffer, int64_t value) { tc_append(buffer, &value, sizeof value); }

/* Append bit number `at` of a bitmap in Arrow's order; every eighth takes the byte that was reserved for it. */
static inline void tc_append_bit(tc_buffer *buffer, int64_t at, int set) {
        if ((at & 7) == 0) buffer->data[buffer->size++] = 0;
        if (set) buffer->data[at >> 3] = (char)(buffer->data[at >> 3] | 1 << (at & 7));
}

#endif
