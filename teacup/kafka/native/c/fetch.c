/* Takes records from a consumer's queue into Arrow columns: the loop over records.
 *
 * The consumer belongs to Python, which made it, assigns it, and closes it after `tc_fetch_free`. It is one of our own:
 * a consumer of confluent-kafka must not be polled from here, because its callbacks expect to be within a call of
 * confluent-kafka, and abort the process otherwise.
 *
 * One thread at a time; calls may come from different threads.
 */
#include <stdlib.h>
#include <string.h>

#include "export.h"
#include "records.h"

enum {
        AT_ONCE = 20000,      /* how many records are taken from librdkafka's queue together */
        PARTITION_EOF = -191, /* RD_KAFKA_RESP_ERR__PARTITION_EOF: nothing further at the moment */
};

typedef struct {
        rd_kafka_queue_t *queue;     /* borrowed; outlives the fetch */
        rd_kafka_message_t **held;   /* taken from the queue, [at, held_end) not yet added; owned */
        int64_t at, held_end;
        rd_kafka_message_t *event;   /* the last one, kept for its text; owned */
        tc_records records;
} tc_fetch;

typedef enum {
        TC_MORE,   /* `limit` not reached: nothing more has arrived in time */
        TC_BEYOND, /* the next record, which is kept, lies at or beyond the end */
        TC_LIMIT,  /* as many rows or bytes as were asked for */
        TC_EVENT,  /* `error`, `offset` and `text` of an event; the end of the partition is one */
        TC_MEMORY, /* no memory */
} tc_stopped;

/* What a call of `tc_fetch_take` found. */
typedef struct {
        int64_t rows, size; /* of the columns so far */
        int64_t last;       /* offset of the last record added by this call; -1: it added none */
        int64_t offset;
        const char *text;   /* valid until the next call */
        int32_t error;
        int32_t stopped;    /* a tc_stopped */
} tc_taken;

/* Over the consumer's queue; NULL where there is no memory. */
TC_EXPORT tc_fetch *tc_fetch_new(rd_kafka_queue_t *queue) {
        tc_fetch *f = calloc(1, sizeof *f);
        if (f) f->held = malloc(AT_ONCE * sizeof *f->held);
        if (f && !f->held) {
                free(f);
                return NULL;
        }
        if (f) f->queue = queue;
        return f;
}

static void drop_event(tc_fetch *f) {
        if (f->event) rd.message_destroy(f->event);
        f->event = NULL;
}

/* Forget what was taken from the queue and what was added: the consumer was assigned another position. */
TC_EXPORT void tc_fetch_clear(tc_fetch *f) {
        while (f->at < f->held_end) rd.message_destroy(f->held[f->at++]);
        drop_event(f);
        tc_records_free(&f->records);
}

/* Before the consumer is destroyed. */
TC_EXPORT void tc_fetch_free(tc_fetch *f) {
        tc_fetch_clear(f);
        free(f->held);
        free(f);
}

/* Keep the records that have come and were not taken, without waiting, before another assignment drops them: the first
 * ones, of some `size` bytes. Returns the offset after the last one, or -1 if there is none. */
TC_EXPORT int64_t tc_fetch_keep(tc_fetch *f, int64_t size) {
        int64_t taken = f->held_end - f->at, next = -1;
        memmove(f->held, f->held + f->at, (size_t)taken * sizeof *f->held);
        ssize_t came = rd.consume_batch_queue(f->queue, 0, f->held + taken, (size_t)(AT_ONCE - taken));
        if (came > 0) taken += came;
        f->at = f->held_end = 0;
        for (int64_t i = 0; i < taken; i++) {
                rd_kafka_message_t *m = f->held[i];
                if (m->err && m->err != PARTITION_EOF) size = -1; /* what follows an error need not follow the records */
                if (m->err || size < 0) {
                        rd.message_destroy(m);
                        continue;
                }
                size -= (int64_t)(m->key_len + m->len);
                next = m->offset + 1;
                f->held[f->held_end++] = m;
        }
        return next;
}

static void refill(tc_fetch *f, int64_t wanted, int wait_ms) {
        if (f->at < f->held_end) return;
        if (wanted > AT_ONCE) wanted = AT_ONCE;
        ssize_t got = rd.consume_batch_queue(f->queue, wait_ms, f->held, (size_t)wanted);
        f->at = 0;
        f->held_end = got > 0 ? got : 0;
}

/* Add records below `end`: until the columns have `rows` of them, or `size` bytes with the last one. Takes from the queue
 * once, at most `wanted` (1 or more), and waits `wait_ms` for the first. */
TC_EXPORT void tc_fetch_take(tc_fetch *f, int64_t end, int64_t rows, int64_t size, int64_t wanted, int wait_ms,
                             tc_taken *taken) {
        *taken = (tc_taken){.last = -1, .stopped = TC_MORE};
        drop_event(f);
        refill(f, wanted, wait_ms);
        while (f->at < f->held_end && taken->stopped == TC_MORE) {
                rd_kafka_message_t *m = f->held[f->at];
                if (m->err) {
                        f->event = m;
                        f->at++;
                        taken->error = m->err;
                        taken->offset = m->offset;
                        taken->text = rd.message_errstr(m);
                        taken->stopped = TC_EVENT;
                        break;
                }
                if (m->offset >= end) {
                        taken->stopped = TC_BEYOND;
                        break;
                }
                switch (tc_add(&f->records, m)) {
                case TC_ADDED:
                        taken->last = m->offset;
                        rd.message_destroy(m);
                        f->at++;
                        if (f->records.rows >= rows || f->records.size >= size) taken->stopped = TC_LIMIT;
                        break;
                case TC_FULL: taken->stopped = f->records.rows ? TC_LIMIT : TC_MEMORY; break;
                case TC_NO_MEMORY: taken->stopped = TC_MEMORY; break;
                }
        }
        taken->rows = f->records.rows;
        taken->size = f->records.size;
}

/* The columns of what was added (at least one record), as seven arrays; see `tc_export_records`. */
TC_EXPORT int tc_fetch_columns(tc_fetch *f, int32_t partition, struct ArrowArray out[TC_COLUMNS]) {
        return tc_export_records(&f->records, partition, out);
}
