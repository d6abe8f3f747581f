/* Which values of a column are one Avro record each, to their end: a schema's program is run over each of them.
 *
 * A program is a list of numbers: an operation, what it needs, and so on; a record is the programs of its fields, one
 * after the other. `teacup.kafka.records.avro_check` makes programs, and says what is refused and why; its functions in Python decide
 * the same. Each loop takes at least one byte of the value for each turn, and recursion is as deep as the schema.
 */
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "export.h"
#include "utf8.h"

/* As in records/avro_check.py. What follows an operation: */
enum {
        FIXED,    /* how many bytes */
        INT,      /* nothing */
        LONG,     /* nothing */
        BYTES,    /* how many at most, or -1 */
        STRING,   /* nothing */
        ENUM,     /* how many symbols */
        NULLABLE, /* the size of the program of the other type, which follows */
        ARRAY     /* the size of the program of an item, which follows */
};

/* The functions below are given where a value begins; they return what follows it, or NULL. */

static const uint8_t *read_long(const uint8_t *at, const uint8_t *end, int64_t *number) {
        uint64_t bits = 0;
        for (int shift = 0; shift < 70 && at < end; shift += 7) { /* ten bytes at most */
                uint8_t byte = *at++;
                bits |= (uint64_t)(byte & 127) << shift;
                if (byte < 128) {
                        *number = (int64_t)((bits >> 1) ^ (~(bits & 1) + 1));
                        return at;
                }
        }
        return NULL;
}

static const uint8_t *skip_sized(const uint8_t *at, const uint8_t *end, int64_t most, bool text) {
        int64_t size;
        if (!(at = read_long(at, end, &size)) || size < 0 || size > end - at) return NULL;
        if (most >= 0 && size > most) return NULL;
        return !text || tc_is_utf8((const char *)at, (size_t)size) ? at + size : NULL;
}

static const uint8_t *skip(const int64_t *program, const int64_t *stop, const uint8_t *at, const uint8_t *end);

static const uint8_t *skip_array(const int64_t *item, const int64_t *stop, const uint8_t *at, const uint8_t *end) {
        for (;;) {
                int64_t count, bytes;
                if (!(at = read_long(at, end, &count))) return NULL;
                if (count == 0) return at;
                if (count < 0) {
                        if (!(at = read_long(at, end, &bytes))) return NULL;
                        count = count == INT64_MIN ? 0 : -count; /* polars reads that block as empty */
                }
                for (; count; count--)
                        if (!(at = skip(item, stop, at, end))) return NULL;
        }
}

static const uint8_t *skip(const int64_t *program, const int64_t *stop, const uint8_t *at, const uint8_t *end) {
        while (at && program < stop) {
                int64_t operation = *program++, number;
                switch (operation) {
                case FIXED: at = *program <= end - at ? at + *program : NULL; program++; break;
                case INT:
                        at = read_long(at, end, &number);
                        if (at && (number < INT32_MIN || number > INT32_MAX)) return NULL;
                        break;
                case LONG: at = read_long(at, end, &number); break;
                case BYTES: at = skip_sized(at, end, *program++, false); break;
                case STRING: at = skip_sized(at, end, -1, true); break;
                case ENUM:
                        at = read_long(at, end, &number);
                        if (at && (int64_t)(number & 0xFFFFFFFF) >= *program) return NULL;
                        program++;
                        break;
                case NULLABLE:
                case ARRAY: {
                        const int64_t *inner = program + 1, *behind = inner + *program;
                        if (operation == ARRAY)
                                at = skip_array(inner, behind, at, end);
                        else if ((at = read_long(at, end, &number)) && number)
                                at = skip(inner, behind, at, end);
                        program = behind;
                        break;
                }
                default: return NULL;
                }
        }
        return at;
}

/* Whether each value of a column (Arrow `binary`, without nulls) is one record, as bits in Arrow's order.
 *
 * offsets, data    the column's buffers; data may be NULL if it is empty
 * first            the column's own offset into the buffers   rows   how many values
 * program, cells   what a record is, and how many numbers that takes
 * answer           (rows + 7) / 8 bytes, all written
 *
 * Borrows everything for the call. Returns how many are. */
TC_EXPORT int64_t tc_avro_valid(const int32_t *offsets, const char *data, int64_t first, int64_t rows,
                                const int64_t *program, int64_t cells, uint8_t *answer) {
        static const uint8_t nothing[1];
        const uint8_t *bytes = data ? (const uint8_t *)data : nothing;
        int64_t good = 0;
        memset(answer, 0, (size_t)((rows + 7) / 8));
        for (int64_t row = 0; row < rows; row++) {
                const uint8_t *at = bytes + offsets[first + row], *end = bytes + offsets[first + row + 1];
                if (skip(program, program + cells, at, end) != end) continue;
                answer[row >> 3] |= (uint8_t)(1 << (row & 7));
                good++;
        }
        return good;
}
