#include "arrow.h"

#include <stdlib.h>

enum { BUFFERS = 3, CHILDREN = 2 }; /* the most that an array of the columns here has */

typedef struct {
        const void *buffers[BUFFERS];
        struct ArrowArray child[CHILDREN], *children[CHILDREN];
} holder;

static void release(struct ArrowArray *array) {
        holder *held = array->private_data;
        for (int64_t i = 0; i < array->n_buffers; i++) free((void *)held->buffers[i]);
        for (int64_t i = 0; i < array->n_children; i++) /* a child that was moved out has no release any more */
                if (held->child[i].release) held->child[i].release(&held->child[i]);
        free(held);
        array->release = NULL;
}

int tc_export(struct ArrowArray *out, int64_t length, int64_t nulls, int n_buffers, tc_buffer *const *buffers,
              int n_children, struct ArrowArray *children) {
        holder *held = calloc(1, sizeof *held);
        if (!held) return -1;
        for (int i = 0; i < n_buffers; i++) {
                if (!buffers[i]) continue;
                tc_shrink(buffers[i]);
                held->buffers[i] = buffers[i]->data;
                *buffers[i] = (tc_buffer){0};
        }
        for (int i = 0; i < n_children; i++) {
                held->child[i] = children[i];
                held->children[i] = &held->child[i];
                children[i].release = NULL;
        }
        *out = (struct ArrowArray){
                .length = length,
                .null_count = nulls,
                .n_buffers = n_buffers,
                .n_children = n_children,
                .buffers = held->buffers,
                .children = n_children ? held->children : NULL,
                .release = release,
                .private_data = held,
        };
        return 0;
}
