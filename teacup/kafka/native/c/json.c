/* Whether texts are JSON, as RFC 8259 defines it: no more, no less, to any depth; and whether a field holds one of some
 * texts.
 *
 * The texts are a column of Arrow strings, so they are UTF-8 already. A text is read once, from left to right; of each
 * open bracket one bit is remembered. A field is found on the way: of several of one name the first counts.
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

/* Some texts, as the buffers of an Arrow string column. */
typedef struct {
        const int32_t *offsets;
        const char *data;
        int64_t count;
} words;

static bool is_word(const words *of, int64_t number, const char *at, int64_t size) {
        int32_t from = of->offsets[number];
        return of->offsets[number + 1] - from == size && !memcmp(of->data + from, at, (size_t)size);
}

/* A search for the value at a path of names. `inside` names lead to the object that is open. */
typedef struct {
        const words *path;
        int64_t inside;
        bool next;    /* the value that begins now is that of the name after these */
        bool over;    /* it was found, or is not there */
        bool escaped; /* over, as a name was met whose characters are not plain */
        const char *from, *to;
} search;

static void begin_search(search *field) {
        field->inside = 0;
        field->next = field->escaped = false;
        field->over = field->path->count == 0;
        field->from = field->to = NULL;
}

/* A name in an object at this depth. */
static void see_name(search *field, int64_t depth, const char *name, const char *to) {
        if (field->over || depth != field->inside + 1) return;
        if (memchr(name, '\\', (size_t)(to - name)))
                field->over = field->escaped = true;
        else
                field->next = is_word(field->path, field->inside, name, to - name);
}

/* A value begins, an object with members or anything else. */
static void see_value(search *field, const char *at, bool object) {
        if (!field->next) return;
        field->next = false;
        if (field->inside + 1 == field->path->count) {
                field->over = true;
                field->from = at;
        } else if (object) {
                field->inside++;
        } else {
                field->over = true;
        }
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
static const char *read_name(const char *at, const char *end, search *field, int64_t depth) {
        at = skip_space(at, end);
        if (at == end || *at != '"') return NULL;
        const char *name = at + 1;
        if (!(at = read_string(at, end))) return NULL;
        see_name(field, depth, name, at - 1);
        at = skip_space(at, end);
        return at < end && *at == ':' ? at + 1 : NULL;
}

/* 1: it is JSON, 0: it is not, -1: no memory. */
static int is_json(const char *at, const char *end, nesting *open, search *field) {
        open->depth = 0;
        for (;;) { /* a value begins */
                at = skip_space(at, end);
                if (at == end) return 0;
                if (*at == '{' || *at == '[') {
                        bool object = *at == '{';
                        const char *next = skip_space(at + 1, end);
                        bool empty = next < end && *next == (object ? '}' : ']');
                        see_value(field, at, object && !empty);
                        if (empty) {
                                at = next + 1;
                        } else {
                                if (push(open, object)) return -1;
                                at = object ? read_name(next, end, field, open->depth) : next;
                                if (!at) return 0;
                                continue;
                        }
                } else {
                        see_value(field, at, false);
                        bool found = field->from == at;
                        if (!(at = read_scalar(at, end))) return 0;
                        if (found) field->to = at;
                }
                for (;;) { /* a value has ended */
                        at = skip_space(at, end);
                        if (open->depth == 0) return at == end;
                        if (at == end) return 0;
                        bool object = in_object(open);
                        if (*at == (object ? '}' : ']')) {
                                open->depth--;
                                at++;
                                if (open->depth <= field->inside) field->over = true;
                        } else if (*at == ',') {
                                at = object ? read_name(at + 1, end, field, open->depth) : at + 1;
                                if (!at) return 0;
                                break;
                        } else {
                                return 0;
                        }
                }
        }
}

enum { NO = 0, YES = 1, UNSURE = 2 };

/* Whether what was found is one of these texts, as a join key would be text; not sure of what is not plain. */
static int holds(const search *field, const words *texts) {
        if (field->escaped) return UNSURE;
        if (!field->to) return NO; /* nothing, an object, an array */
        const char *at = field->from, *to = field->to;
        if (*at == 'n') return NO;
        if (*at == '"') {
                at++, to--;
                if (memchr(at, '\\', (size_t)(to - at))) return UNSURE;
        } else if (*at != 't' && *at != 'f') {
                const char *digit = at + (*at == '-');
                if (digit > at && *digit == '0') return UNSURE; /* -0 is 0 */
                for (; digit < to; digit++)
                        if (!is_digit(*digit)) return UNSURE;
        }
        for (int64_t number = 0; number < texts->count; number++)
                if (is_word(texts, number, at, to - at)) return YES;
        return NO;
}

/* Whether each text of a column (Arrow `string`) is JSON, as bits in Arrow's order; a null counts as JSON. If a path is
 * given, also whether the field there holds one of some texts: a byte each, as above; undefined if it is not JSON.
 *
 * valid    the column's validity bits, or NULL        offsets, data   its other buffers; data may be NULL if it is empty
 * first    the column's own offset into the buffers   rows            how many texts
 * names, name_data, depth     the path, as such buffers; depth 0: none
 * texts, text_data, choices   the texts, likewise
 * answer   (rows + 7) / 8 bytes, all written          held            rows bytes, all written; NULL without a path
 *
 * Borrows everything for the call. Returns 0, or -1 where there was no memory. */
TC_EXPORT int tc_json_valid(const uint8_t *valid, const int32_t *offsets, const char *data, int64_t first, int64_t rows,
                            const int32_t *names, const char *name_data, int64_t depth, const int32_t *texts,
                            const char *text_data, int64_t choices, uint8_t *answer, uint8_t *held) {
        nesting open = {0};
        words path = {names, name_data, depth}, wanted = {texts, text_data, choices};
        search field = {.path = &path};
        int result = 0;
        memset(answer, 0, (size_t)((rows + 7) / 8));
        for (int64_t row = 0; row < rows && !result; row++) {
                int64_t at = first + row;
                int ok = 1;
                begin_search(&field);
                if (!valid || valid[at >> 3] >> (at & 7) & 1) {
                        int32_t from = offsets[at], to = offsets[at + 1];
                        ok = from < to ? is_json(data + from, data + to, &open, &field) : 0;
                }
                if (ok < 0) result = -1;
                if (ok > 0) answer[row >> 3] |= (uint8_t)(1 << (row & 7));
                if (held) held[row] = (uint8_t)holds(&field, &wanted);
        }
        tc_free(&open.bits);
        return result;
}
