#include "text.h"

#include "utf8.h"

/* ---- one value; each reserves, then appends ---- */

static int append(tc_buffer *to, const char *from, int64_t size) {
        if (tc_reserve(to, size)) return -1;
        tc_append(to, from, size);
        return 0;
}

static int append_number(tc_buffer *to, int64_t value) {
        char digits[20]; /* of 2^63, with its sign */
        int at = sizeof digits;
        uint64_t rest = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
        do digits[--at] = (char)('0' + rest % 10);
        while (rest /= 10);
        if (value < 0) digits[--at] = '-';
        return append(to, digits + at, (int64_t)sizeof digits - at);
}

static int append_base64(tc_buffer *to, tc_bytes_at value, const char *before, const char *after) {
        static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        const unsigned char *at = (const unsigned char *)value.at;
        size_t left = value.size;
        if (append(to, before, (int64_t)strlen(before)) ||
            tc_reserve(to, (int64_t)((left + 2) / 3 * 4 + strlen(after))))
                return -1;
        char *out = to->data + to->size;
        for (size_t some; left; at += some, left -= some) {
                some = left < 3 ? left : 3;
                unsigned bits = (unsigned)at[0] << 16 | (some > 1 ? (unsigned)at[1] << 8 : 0) | (some > 2 ? at[2] : 0);
                *out++ = digits[bits >> 18];
                *out++ = digits[bits >> 12 & 63];
                *out++ = some > 1 ? digits[bits >> 6 & 63] : '=';
                *out++ = some > 2 ? digits[bits & 63] : '=';
        }
        to->size = out - to->data;
        tc_append(to, after, (int64_t)strlen(after));
        return 0;
}

/* The letter of a short escape (\n); 0: there is none. */
static char short_escape(unsigned char one) {
        switch (one) {
        case '"': return '"';
        case '\\': return '\\';
        case '\b': return 'b';
        case '\f': return 'f';
        case '\n': return 'n';
        case '\r': return 'r';
        case '\t': return 't';
        default: return 0;
        }
}

static char *escaped(char *out, const unsigned char *at, size_t size) {
        static const char hex[] = "0123456789abcdef";
        for (const unsigned char *end = at + size; at < end; at++) {
                char letter = short_escape(*at);
                if (letter) {
                        *out++ = '\\';
                        *out++ = letter;
                } else if (*at < 0x20) {
                        memcpy(out, "\\u00", 4);
                        out[4] = hex[*at >> 4];
                        out[5] = hex[*at & 15];
                        out += 6;
                } else {
                        *out++ = (char)*at;
                }
        }
        return out;
}

static int append_string(tc_buffer *to, tc_bytes_at value) {
        const unsigned char *at = (const unsigned char *)value.at;
        unsigned high = 0;
        int64_t longer = 0;
        for (size_t i = 0; i < value.size; i++) {
                high |= at[i];
                if (at[i] < 0x20 || at[i] == '"' || at[i] == '\\') longer += short_escape(at[i]) ? 1 : 5;
        }
        if (high >= 0x80 && !tc_is_utf8(value.at, value.size)) return append_base64(to, value, "{\"base64\": \"", "\"}");
        if (tc_reserve(to, (int64_t)value.size + longer + 2)) return -1;
        tc_append(to, "\"", 1);
        if (longer)
                to->size = escaped(to->data + to->size, at, value.size) - to->data;
        else
                tc_append(to, value.at, (int64_t)value.size);
        tc_append(to, "\"", 1);
        return 0;
}

static int append_value(tc_buffer *to, const tc_piece *piece, int64_t row) {
        if (tc_is_null(piece->column, row)) return append(to, "null", 4);
        if (piece->form == TC_NUMBER) return append_number(to, tc_number(piece->column, row));
        tc_bytes_at value = tc_bytes_of(piece->column, row);
        if (piece->form == TC_STRING) return append_string(to, value);
        if (piece->form == TC_BASE64) return append_base64(to, value, "\"", "\"");
        return append(to, value.at, (int64_t)value.size);
}

int tc_append_text(const tc_text *text, int64_t row, tc_buffer *to) {
        for (const tc_piece *piece = text->pieces, *end = piece + text->count; piece < end; piece++) {
                if (piece->where && tc_is_true(piece->where, row) != (piece->holds != 0)) continue;
                if (piece->form == TC_LITERAL ? append(to, piece->text, piece->size) : append_value(to, piece, row)) return -1;
        }
        return 0;
}
