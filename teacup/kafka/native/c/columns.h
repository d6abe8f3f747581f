/* Arrow columns that are read: those of teacup/kafka/native/columns.py, borrowed for the length of a call. */
#ifndef TC_COLUMNS_H
#define TC_COLUMNS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum {
        TC_BYTES32, /* binary, string: `values` are 32-bit offsets into `data` */
        TC_BYTES64, /* large_binary, large_string */
        TC_VIEWS,   /* binary_view, string_view: short ones are in `values`, others in one of `buffers` */
        TC_INT32,
        TC_INT64,
        TC_BOOLS,
        TC_LISTS32, /* list: `values` are offsets into other columns */
        TC_LISTS64, /* large_list */
} tc_kind;

typedef struct {
        const uint8_t *valid; /* NULL: no value is null */
        const void *values;
        const char *data; /* may be NULL where there are no bytes */
        const char *const *buffers;
        int64_t first; /* the column's own offset into its buffers */
        int32_t kind;
} tc_column;

typedef struct {
        const char *at; /* NULL: null */
        size_t size;
} tc_bytes_at;

static inline bool tc_bit(const uint8_t *bits, int64_t at) { return bits[at >> 3] >> (at & 7) & 1; }

static inline bool tc_is_null(const tc_column *c, int64_t row) { return c->valid && !tc_bit(c->valid, c->first + row); }

/* A boolean; a null is false. */
static inline bool tc_is_true(const tc_column *c, int64_t row) {
        return !tc_is_null(c, row) && tc_bit(c->values, c->first + row);
}

/* A number that is not null. */
static inline int64_t tc_number(const tc_column *c, int64_t row) {
        int64_t at = c->first + row;
        return c->kind == TC_INT32 ? ((const int32_t *)c->values)[at] : ((const int64_t *)c->values)[at];
}

/* Where a value (of bytes, or a list that is not null) begins, and where it ends. */
static inline void tc_bounds(const tc_column *c, int64_t row, int64_t *from, int64_t *to) {
        int64_t at = c->first + row;
        if (c->kind == TC_BYTES64 || c->kind == TC_LISTS64) {
                const int64_t *offsets = c->values;
                *from = offsets[at];
                *to = offsets[at + 1];
        } else {
                const int32_t *offsets = c->values;
                *from = offsets[at];
                *to = offsets[at + 1];
        }
}

static inline tc_bytes_at tc_bytes_of(const tc_column *c, int64_t row) {
        if (tc_is_null(c, row)) return (tc_bytes_at){NULL, 0};
        if (c->kind == TC_VIEWS) {
                const int32_t *view = (const int32_t *)c->values + 4 * (c->first + row);
                const char *at = view[0] <= 12 ? (const char *)(view + 1) : c->buffers[view[2]] + view[3];
                return (tc_bytes_at){at, (size_t)view[0]};
        }
        int64_t from, to;
        tc_bounds(c, row, &from, &to);
        return (tc_bytes_at){c->data ? c->data + from : "", (size_t)(to - from)}; /* empty is not null */
}

#endif
