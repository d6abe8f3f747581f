/* Arrow's C data interface: how finished columns are handed to pyarrow. */
#ifndef TC_ARROW_H
#define TC_ARROW_H

#include <stdint.h>

#include "buffer.h"

/* As the specification declares it: https://arrow.apache.org/docs/format/CDataInterface.html */
struct ArrowArray {
        int64_t length, null_count, offset, n_buffers, n_children;
        const void **buffers;
        struct ArrowArray **children;
        struct ArrowArray *dictionary;
        void (*release)(struct ArrowArray *);
        void *private_data;
};

/* Make `out` an array of these buffers and children. Their memory moves into it (the givers are left empty) and is freed
 * by its release, which any thread may call, once. A buffer of NULL is a missing validity bitmap.
 * -1 where there is no memory: then nothing has moved, and `out` is not to be released. */
int tc_export(struct ArrowArray *out, int64_t length, int64_t nulls, int n_buffers, tc_buffer *const *buffers,
              int n_children, struct ArrowArray *children);

#endif
