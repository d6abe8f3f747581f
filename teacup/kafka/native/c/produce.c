/* Rows of Arrow columns, handed to a producer: the loop over rows.
 *
 * The producer is confluent-kafka's, which keeps transactions, flush and all callbacks; `rd_kafka_produceva` calls none.
 * One thread at a time for each producer; calls may come from different threads.
 */
#include "export.h"
#include "plugin.h"
#include "text.h"

enum { NO_MEMORY = INT32_MIN }; /* among librdkafka's codes */

typedef struct { /* a header of each row, or all those of a list column */
        const char *name;
        int64_t name_size;
        tc_text value;
        const tc_column *where;                  /* a boolean: which rows have it; NULL: all */
        const tc_column *lists, *names, *values; /* `lists` given: in place of what is above; a null list has no entries */
} tc_header;

typedef struct {
        const tc_column *key, *value; /* NULL: none; a null cell: none in this row */
        const tc_text *text;          /* the value, in place of `value` */
        const tc_column *time;        /* milliseconds; NULL or a null cell: now */
        const tc_column *partition;   /* NULL or a null cell: by the partitioner */
        const tc_header *headers;
        int64_t header_count;
} tc_rows;

/* Add the headers of a list, which begins at `from` and ends before `to`. */
static int add_listed(rd_kafka_headers_t *headers, const tc_header *h, int64_t from, int64_t to) {
        for (int64_t at = from; at < to; at++) {
                tc_bytes_at name = tc_bytes_of(h->names, at), value = tc_bytes_of(h->values, at);
                int failed = rd.header_add(headers, name.at ? name.at : "", (ssize_t)name.size, value.at, (ssize_t)value.size);
                if (failed) return failed;
        }
        return 0;
}

/* The headers of a row into `*headers`, NULL where it has none; owned by the caller also where this fails. */
static int add_headers(const tc_rows *r, int64_t row, tc_buffer *scratch, rd_kafka_headers_t **headers) {
        for (const tc_header *h = r->headers, *end = h + r->header_count; h < end; h++) {
                int64_t from = 0, to = 1;
                if (h->lists ? tc_is_null(h->lists, row) : h->where && !tc_is_true(h->where, row)) continue;
                if (h->lists) tc_bounds(h->lists, row, &from, &to);
                if (from == to) continue;
                if (!*headers && !(*headers = rd.headers_new((size_t)r->header_count))) return NO_MEMORY;
                int failed;
                if (h->lists) {
                        failed = add_listed(*headers, h, from, to);
                } else {
                        scratch->size = 0;
                        if (tc_reserve(scratch, 1) || tc_append_text(&h->value, row, scratch)) return NO_MEMORY;
                        failed = rd.header_add(*headers, h->name, (ssize_t)h->name_size, scratch->data, (ssize_t)scratch->size);
                }
                if (failed) return failed;
        }
        return 0;
}

static tc_bytes_at cell(const tc_column *column, int64_t row) {
        return column ? tc_bytes_of(column, row) : (tc_bytes_at){NULL, 0};
}

static int64_t number(const tc_column *column, int64_t row, int64_t otherwise) {
        return column && !tc_is_null(column, row) ? tc_number(column, row) : otherwise;
}

/* One row; 0, librdkafka's code, or NO_MEMORY: then nothing of it was produced. */
static int produce(rd_kafka_t *handle, rd_kafka_topic_t *topic, const tc_rows *r, int64_t row, tc_buffer *scratch) {
        rd_kafka_headers_t *headers = NULL;
        int failed = add_headers(r, row, scratch, &headers);
        tc_bytes_at key = cell(r->key, row), value = cell(r->value, row);
        if (!failed && r->text) {
                scratch->size = 0;
                if (tc_reserve(scratch, 1) || tc_append_text(r->text, row, scratch)) failed = NO_MEMORY;
                value = (tc_bytes_at){scratch->data, (size_t)scratch->size};
        }
        if (!failed) {
                const rd_kafka_vu_t given[] = {
                        {.vtype = TC_VTYPE_RKT, .u.rkt = topic},
                        {.vtype = TC_VTYPE_MSGFLAGS, .u.i = TC_MSG_F_COPY},
                        {.vtype = TC_VTYPE_PARTITION, .u.i32 = (int32_t)number(r->partition, row, -1)},
                        {.vtype = TC_VTYPE_TIMESTAMP, .u.i64 = number(r->time, row, 0)},
                        {.vtype = TC_VTYPE_KEY, .u.mem = {(void *)key.at, key.size}},
                        {.vtype = TC_VTYPE_VALUE, .u.mem = {(void *)value.at, value.size}},
                        {.vtype = TC_VTYPE_HEADERS, .u.headers = headers},
                };
                rd_kafka_error_t *error = rd.produceva(handle, given, sizeof given / sizeof *given - !headers);
                if (!error) return 0; /* the headers are librdkafka's now */
                failed = rd.error_code(error);
                rd.error_destroy(error);
        }
        if (headers) rd.headers_destroy(headers);
        return failed;
}

/* Hand rows [from, to) to the producer, in order. Returns how many it took; fewer with `error`: why the next one was not
 * taken (librdkafka's code; NO_MEMORY). Where its queue is full, serve it, and go on from there. */
TC_EXPORT int64_t tc_produce(struct tc_producer *producer, const char *topic, const tc_rows *rows, int64_t from, int64_t to,
                             int32_t *error) {
        rd_kafka_t *handle = tc_producer_handle(producer);
        rd_kafka_topic_t *known = rd.topic_new(handle, topic, NULL); /* it is librdkafka's, and found again by its name */
        tc_buffer scratch = {0};
        int64_t row = from;
        *error = known ? 0 : rd.last_error();
        for (; row < to && !*error; row += !*error) *error = produce(handle, known, rows, row, &scratch);
        tc_free(&scratch);
        if (known) rd.topic_destroy(known);
        return row - from;
}
