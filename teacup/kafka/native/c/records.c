#include "records.h"

#include <stdbool.h>

#include "utf8.h"

/* ---- room ---- */

static int reserve_bytes(tc_bytes *column, int64_t values, int64_t size) {
        return tc_reserve(&column->valid, values / 8 + 1) ||
               tc_reserve(&column->offsets, (values + 1) * (int64_t)sizeof(int32_t)) || tc_reserve(&column->data, size);
}

static bool fits(const tc_bytes *column, int64_t size) { return size <= INT32_MAX - column->data.size; }

/* ---- one value; room was reserved ---- */

static void append_bytes(tc_bytes *column, int64_t at, const void *from, size_t size) {
        if (at == 0) tc_append_int32(&column->offsets, 0);
        tc_append_bit(&column->valid, at, from != NULL);
        if (from)
                tc_append(&column->data, from, (int64_t)size);
        else
                column->nulls++;
        tc_append_int32(&column->offsets, (int32_t)column->data.size);
}

/* ---- headers ---- */

typedef struct {
        const char *name;
        const void *value; /* NULL: null */
        size_t size;
} header;

/* In place of all headers of a record, if the name of one is not UTF-8: teacup.kafka.headers.UNREADABLE. */
static const header unreadable = {"teacup.unreadable", "headers", 7};

static bool next_header(const rd_kafka_headers_t *headers, size_t at, header *found) {
        return !rd.header_get_all(headers, at, &found->name, &found->value, &found->size);
}

/* ---- records ---- */

tc_added tc_add(tc_records *r, const rd_kafka_message_t *m) {
        rd_kafka_headers_t *headers = NULL;
        header one;
        int64_t count = 0, names = 0, values = 0;
        bool readable = true;
        if (rd.message_headers(m, &headers)) headers = NULL;
        for (; headers && next_header(headers, (size_t)count, &one); count++) {
                readable = readable && tc_is_utf8(one.name, strlen(one.name));
                names += (int64_t)strlen(one.name);
                values += one.value ? (int64_t)one.size : 0;
        }
        if (!readable) {
                count = 1;
                names = (int64_t)strlen(unreadable.name);
                values = (int64_t)unreadable.size;
        }
        int64_t key = m->key ? (int64_t)m->key_len : 0, value = m->payload ? (int64_t)m->len : 0;
        if (!fits(&r->key, key) || !fits(&r->value, value) || !fits(&r->name, names) || !fits(&r->header, values) ||
            count > INT32_MAX - r->headers)
                return TC_FULL;
        if (tc_reserve(&r->offset, sizeof(int64_t)) || tc_reserve(&r->timestamp, sizeof(int64_t)) ||
            tc_reserve(&r->timestamp_type, sizeof(int8_t)) || reserve_bytes(&r->key, 1, key) ||
            reserve_bytes(&r->value, 1, value) || reserve_bytes(&r->name, count, names) ||
            reserve_bytes(&r->header, count, values) || tc_reserve(&r->header_valid, 1) ||
            tc_reserve(&r->header_offsets, 2 * sizeof(int32_t)))
                return TC_NO_MEMORY;
        /* From here on nothing fails. */
        int type = 0;
        tc_append_int64(&r->offset, m->offset);
        tc_append_int64(&r->timestamp, rd.message_timestamp(m, &type));
        tc_append_int8(&r->timestamp_type, (int8_t)type);
        append_bytes(&r->key, r->rows, m->key, m->key_len);
        append_bytes(&r->value, r->rows, m->payload, m->len);
        if (r->rows == 0) tc_append_int32(&r->header_offsets, 0);
        for (int64_t i = 0; i < count; i++, r->headers++) {
                if (readable)
                        next_header(headers, (size_t)i, &one);
                else
                        one = unreadable;
                append_bytes(&r->name, r->headers, one.name, strlen(one.name));
                append_bytes(&r->header, r->headers, one.value, one.size);
        }
        tc_append_bit(&r->header_valid, r->rows, count > 0);
        tc_append_int32(&r->header_offsets, (int32_t)r->headers);
        r->without_headers += count == 0;
        r->size += key + value + names + values;
        r->rows++;
        return TC_ADDED;
}

/* ---- the columns, moved out ---- */

static void free_bytes(tc_bytes *column) {
        tc_free(&column->valid);
        tc_free(&column->offsets);
        tc_free(&column->data);
        *column = (tc_bytes){0};
}

void tc_records_free(tc_records *r) {
        tc_free(&r->offset);
        tc_free(&r->timestamp);
        tc_free(&r->timestamp_type);
        free_bytes(&r->key);
        free_bytes(&r->value);
        free_bytes(&r->name);
        free_bytes(&r->header);
        tc_free(&r->header_valid);
        tc_free(&r->header_offsets);
        *r = (tc_records){0};
}

static int export_numbers(struct ArrowArray *out, int64_t rows, tc_buffer *numbers) {
        return tc_export(out, rows, 0, 2, (tc_buffer *const[]){NULL, numbers}, 0, NULL);
}

static int export_bytes(struct ArrowArray *out, int64_t values, tc_bytes *column) {
        if (!column->nulls) tc_free(&column->valid);
        tc_buffer *valid = column->nulls ? &column->valid : NULL;
        return tc_export(out, values, column->nulls, 3, (tc_buffer *const[]){valid, &column->offsets, &column->data}, 0, NULL);
}

static void release_all(struct ArrowArray *arrays, int count) {
        for (int i = 0; i < count; i++)
                if (arrays[i].release) arrays[i].release(&arrays[i]);
}

static int export_headers(struct ArrowArray *out, tc_records *r) {
        struct ArrowArray pair[2] = {{0}, {0}}, entries = {0};
        if (r->headers == 0) { /* offsets begin with the first value, so there are none yet */
                if (tc_reserve(&r->name.offsets, sizeof(int32_t)) || tc_reserve(&r->header.offsets, sizeof(int32_t))) return -1;
                tc_append_int32(&r->name.offsets, 0);
                tc_append_int32(&r->header.offsets, 0);
        }
        int failed = export_bytes(&pair[0], r->headers, &r->name) || export_bytes(&pair[1], r->headers, &r->header) ||
                     tc_export(&entries, r->headers, 0, 1, (tc_buffer *const[]){NULL}, 2, pair);
        if (!r->without_headers) tc_free(&r->header_valid);
        tc_buffer *valid = r->without_headers ? &r->header_valid : NULL;
        failed = failed || tc_export(out, r->rows, r->without_headers, 2, (tc_buffer *const[]){valid, &r->header_offsets}, 1, &entries);
        if (failed) {
                release_all(pair, 2);
                release_all(&entries, 1);
        }
        return failed;
}

static int repeated(tc_buffer *to, int32_t value, int64_t rows) {
        if (tc_reserve(to, rows * (int64_t)sizeof value)) return -1;
        for (int64_t i = 0; i < rows; i++) tc_append_int32(to, value);
        return 0;
}

int tc_export_records(tc_records *r, int32_t partition, struct ArrowArray out[TC_COLUMNS]) {
        tc_buffer partitions = {0};
        for (int i = 0; i < TC_COLUMNS; i++) out[i] = (struct ArrowArray){0};
        int failed = repeated(&partitions, partition, r->rows) || export_numbers(&out[0], r->rows, &partitions) ||
                     export_numbers(&out[1], r->rows, &r->offset) || export_numbers(&out[2], r->rows, &r->timestamp) ||
                     export_numbers(&out[3], r->rows, &r->timestamp_type) || export_bytes(&out[4], r->rows, &r->key) ||
                     export_bytes(&out[5], r->rows, &r->value) || export_headers(&out[6], r);
        if (failed) release_all(out, TC_COLUMNS);
        tc_free(&partitions);
        tc_records_free(r); /* what was moved out is no longer in it */
        return failed ? -1 : 0;
}
