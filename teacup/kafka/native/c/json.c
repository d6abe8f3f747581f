/* Whether texts are JSON, as RFC 8259 defines it: no more, no less, to any depth.
 *
 * The texts are a column of Arrow strings, so they are UTF-8 already. A text is read once, from left to right; of each
 * open bracket one bit is remembered.
 */
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "buffer.h"
#include "export.h"

/* The open brackets, outermost first: bit set: an object. Kept between texts for its memory. */
typedef struct {
        tc_buffer bits;
        int64_t depth;
} nesting;

static int push(nesting *open, bool object) {
        if ((open->depth & 7) == 0 && open->depth >> 3 == open->bits.size) {
                if (tc_reserve(&open->bits, 1)) return -1;
                open->bits.data[open->bits.size++] = 0;
        }
        char *byte = open->bits.data + (open->depth >> 3);
        int bit = 1 << (open->depth & 7);
        *byte = (char)(object ? *byte | bit : *byte & ~bit);
        open->depth++;
        return 0;
}

static bool in_object(const nesting *open) {
        int64_t last = open->depth - 1;
        return open->bits.data[last >> 3] >> (last & 7) & 1;
}

static const char *skip_space(const char *at, const char *end) {
        while (at < end && (*at == ' ' || *at == '\n' || *at == '\t' || *at == '\r')) at++;
        return at;
}

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

static bool is_hex(char c) { return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }

/* Whether one of eight bytes ends a run of plain characters: a quote, a backslash, a control character. */
static bool any_special(const char *at) {
        const uint64_t ones = 0x0101010101010101u, high = 0x8080808080808080u;
        uint64_t eight;
        memcpy(&eight, at, sizeof eight);
        uint64_t quote = eight ^ ones * '"', backslash = eight ^ ones * '\\';
        return (((quote - ones) & ~quote) | ((backslash - ones) & ~backslash) | ((eight - ones * 0x20) & ~eight)) & high;
}

/* The functions below are given the first character of what they read; they return what follows it, or NULL. */

static const char *read_string(const char *at, const char *end) {
        for (at++;;) {
                while (end - at >= 8 && !any_special(at)) at += 8;
                if (at == end) return NULL;
                char c = *at++;
                if (c == '"') return at;
                if ((unsigned char)c < 0x20) return NULL;
                if (c != '\\') continue;
                if (at == end) return NULL;
                c = *at++;
                if (c == 'u') {
                        if (end - at < 4 || !is_hex(at[0]) || !is_hex(at[1]) || !is_hex(at[2]) || !is_hex(at[3]))
                                return NULL;
                        at += 4;
                } else if (!c || !strchr("\"\\/bfnrt", c)) {
                        return NULL;
                }
        }
}

static const char *read_digits(const char *at, const char *end) { /* at least one */
        const char *from = at;
        while (at < end && is_digit(*at)) at++;
        return at == from ? NULL : at;
}

static const char *read_number(const char *at, const char *end) {
        if (*at == '-') at++;
        if (at < end && *at == '0')
                at++;
        else if (!(at = read_digits(at, end)))
                return NULL;
        if (at < end && *at == '.' && !(at = read_digits(at + 1, end))) return NULL;
        if (at < end && (*at == 'e' || *at == 'E')) {
                at++;
                if (at < end && (*at == '+' || *at == '-')) at++;
                at = read_digits(at, end);
        }
        return at;
}

static const char *read_word(const char *at, const char *end, const char *word) {
        size_t size = strlen(word);
        return (size_t)(end - at) >= size && !memcmp(at, word, size) ? at + size : NULL;
}

static const char *read_scalar(const char *at, const char *end) {
        switch (*at) {
        case '"': return read_string(at, end);
        case 't': return read_word(at, end, "true");
        case 'f': return read_word(at, end, "false");
        case 'n': return read_word(at, end, "null");
        default: return read_number(at, end);
        }
}

/* A name and its colon, with the space around them. */
static const char *read_name(const char *at, const char *end) {
        at = skip_space(at, end);
        if (at == end || *at != '"' || !(at = read_string(at, end))) return NULL;
        at = skip_space(at, end);
        return at < end && *at == ':' ? at + 1 : NULL;
}

/* 1: it is JSON, 0: it is not, -1: no memory. */
static int is_json(const char *at, const char *end, nesting *open) {
        open->depth = 0;
        for (;;) { /* a value begins */
                at = skip_space(at, end);
                if (at == end) return 0;
                if (*at == '{' || *at == '[') {
                        bool object = *at == '{';
                        const char *next = skip_space(at + 1, end);
                        if (next < end && *next == (object ? '}' : ']')) {
                                at = next + 1;
                        } else {
                                if (push(open, object)) return -1;
                                at = object ? read_name(next, end) : next;
                                if (!at) return 0;
                                continue;
                        }
                } else if (!(at = read_scalar(at, end))) {
                        return 0;
                }
                for (;;) { /* a value has ended */
                        at = skip_space(at, end);
                        if (open->depth == 0) return at == end;
                        if (at == end) return 0;
                        bool object = in_object(open);
                        if (*at == (object ? '}' : ']')) {
                                open->depth--;
                                at++;
                        } else if (*at == ',') {
                                at = object ? read_name(at + 1, end) : at + 1;
                                if (!at) return 0;
                                break;
                        } else {
                                return 0;
                        }
                }
        }
}

/* Whether each text of a column (Arrow `string`) is JSON, as bits in Arrow's order; a null counts as JSON.
 *
 * valid    the column's validity bits, or NULL        offsets, data   its other buffers; data may be NULL if it is empty
 * first    the column's own offset into the buffers   rows            how many texts
 * answer   (rows + 7) / 8 bytes, all written
 *
 * Borrows everything for the call. Returns 0, or -1 where there was no memory. */
TC_EXPORT int tc_json_valid(const uint8_t *valid, const int32_t *offsets, const char *data, int64_t first, int64_t rows,
                            uint8_t *answer) {
        nesting open = {0};
        int result = 0;
        memset(answer, 0, (size_t)((rows + 7) / 8));
        for (int64_t row = 0; row < rows && !result; row++) {
                int64_t at = first + row;
                int ok = 1;
                if (!valid || valid[at >> 3] >> (at & 7) & 1) {
                        int32_t from = offsets[at], to = offsets[at + 1];
                        ok = from < to ? is_json(data + from, data + to, &open) : 0;
                }
                if (ok < 0) result = -1;
                if (ok > 0) answer[row >> 3] |= (uint8_t)(1 << (row & 7));
        }
        tc_free(&open.bits);
        return result;
}
