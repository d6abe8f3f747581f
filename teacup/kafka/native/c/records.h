/* Records of one partition as Arrow columns that grow: those of teacup.kafka.read.fetch.SCHEMA. */
#ifndef TC_RECORDS_H
#define TC_RECORDS_H

#include "arrow.h"
#include "buffer.h"
#include "rdkafka.h"

typedef struct { /* a binary or string column; offsets has one more entry than there are values */
        tc_buffer valid, offsets, data;
        int64_t nulls;
} tc_bytes;

typedef struct {
        int64_t rows, size, headers; /* size: the bytes of keys, values, and names and values of headers */
        int64_t without_headers;
        tc_buffer offset, timestamp, timestamp_type;
        tc_bytes key, value, name, header;
        tc_buffer header_valid, header_offsets; /* of the list of each record's headers */
} tc_records;

typedef enum {
        TC_ADDED,
        TC_FULL,      /* a column's bytes would pass Arrow's 32-bit offsets; possible in the next batch */
        TC_NO_MEMORY, /* these two: nothing of the record was added */
} tc_added;

tc_added tc_add(tc_records *records, const rd_kafka_message_t *message);

void tc_records_free(tc_records *records);

enum { TC_COLUMNS = 7 };

/* Move the columns (at least one row) out as arrays of their own, in the order of the schema; the records are empty
 * afterwards, ready for the next. -1 where there is no memory: all that was read is dropped then. */
int tc_export_records(tc_records *records, int32_t partition, struct ArrowArray out[TC_COLUMNS]);

#endif
