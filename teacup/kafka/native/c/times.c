/* Event times as texts: numbers since the epoch, RFC 3339 and ISO 8601, as teacup/kafka/records/written_times.py says. */
#include <stdbool.h>
#include <stdint.h>

#include "columns.h"
#include "export.h"

/* What a text is, in the order of teacup/kafka/records/written_times.py. */
enum {
        NO_TIME,
        UTC,   /* milliseconds */
        LOCAL, /* microseconds, without a zone */
        LONG,  /* a number with a fraction or an exponent, whose digits are more than a double has */
};

typedef enum { MS, S, US } unit;

/* What is left of a text. */
typedef struct {
        const char *at, *end;
} rest;

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

static char peek(const rest *of) { return of->at < of->end ? *of->at : 0; }

static bool take(rest *of, const char *one_of) { /* one of some characters */
        char c = peek(of);
        for (; c && *one_of; one_of++)
                if (c == *one_of) return of->at++, true;
        return false;
}

/* A number of so many digits, at most `most`; -1: it is none. */
static int take_number(rest *of, int digits, int most) {
        int found = 0;
        for (int i = 0; i < digits; i++, of->at++) {
                if (!is_digit(peek(of))) return -1;
                found = found * 10 + (*of->at - '0');
        }
        return found <= most ? found : -1;
}

/* Days since 1970-01-01 in the Gregorian calendar; sets `exists` to whether the month has the day. After Howard Hinnant,
 * chrono-compatible low-level date algorithms. */
static int64_t days_since_epoch(int year, int month, int day, bool *exists) {
        static const int days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
        bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
        *exists = month >= 1 && day >= 1 && day <= days[month - 1] + (month == 2 && leap);
        int64_t y = year - (month <= 2), era = (y >= 0 ? y : y - 399) / 400, of_era = y - era * 400;
        int64_t of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
        return era * 146097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719468;
}

/* The microseconds of a date, a time and perhaps a zone. */
static int read_date(rest text, int64_t *found) {
        int year = take_number(&text, 4, 9999);
        bool extended = take(&text, "-");
        int month = take_number(&text, 2, 12);
        if (extended && !take(&text, "-")) return NO_TIME;
        int day = take_number(&text, 2, 31);
        if (year < 0 || month < 1 || day < 0 || !take(&text, "Tt ")) return NO_TIME;
        int hour = take_number(&text, 2, 23);
        if (extended && !take(&text, ":")) return NO_TIME;
        int minute = take_number(&text, 2, 59), second = 0;
        if (hour < 0 || minute < 0) return NO_TIME;
        int64_t us = 0;
        if (extended ? take(&text, ":") : is_digit(peek(&text))) {
                if ((second = take_number(&text, 2, 59)) < 0) return NO_TIME;
                if (take(&text, ".,")) {
                        if (!is_digit(peek(&text))) return NO_TIME;
                        for (int64_t worth = 100000; is_digit(peek(&text)); text.at++, worth /= 10)
                                us += worth * (*text.at - '0');
                }
        }
        bool exists;
        int64_t days = days_since_epoch(year, month, day, &exists);
        if (!exists) return NO_TIME;
        *found = (((days * 24 + hour) * 60 + minute) * 60 + second) * 1000000 + us;
        if (text.at == text.end) return LOCAL;
        if (!take(&text, "Zz")) {
                bool west = peek(&text) == '-';
                if (!take(&text, "+-")) return NO_TIME;
                int hours = take_number(&text, 2, 23), minutes = 0;
                if (hours < 0) return NO_TIME;
                if (text.at < text.end) {
                        take(&text, ":");
                        if ((minutes = take_number(&text, 2, 59)) < 0) return NO_TIME;
                }
                *found += (hours * 60 + minutes) * (west ? 60000000LL : -60000000LL);
        }
        if (text.at < text.end || *found < 0) return NO_TIME; /* before 1970 */
        *found /= 1000;
        return UTC;
}

/* A number is digits, perhaps with a fraction and an exponent. One of up to 2^53 that is to be multiplied or divided by
 * at most 10^22 is exact in one step (W. D. Clinger, How to read floating point numbers accurately, 1990). */
static int read_number(rest text, unit of, int64_t *found) {
        static const double tens[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                      1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
        int64_t number = 0, exponent = 0;
        bool fits = true, whole = true;
        if (!is_digit(peek(&text))) return NO_TIME;
        for (int part = 0; part < 2; part++) {
                for (; is_digit(peek(&text)); text.at++, exponent -= part) {
                        int digit = *text.at - '0';
                        fits = fits && number <= (INT64_MAX - digit) / 10;
                        if (fits) number = number * 10 + digit;
                }
                if (part || !take(&text, ".")) break;
                whole = false;
                if (!is_digit(peek(&text))) return NO_TIME;
        }
        if (take(&text, "eE")) {
                bool below = peek(&text) == '-';
                int64_t by = 0;
                whole = false;
                take(&text, "+-");
                if (!is_digit(peek(&text))) return NO_TIME;
                for (; is_digit(peek(&text)); text.at++) by = by < 1000000 ? by * 10 + (*text.at - '0') : by;
                exponent += below ? -by : by;
        }
        if (text.at < text.end) return NO_TIME;
        if (whole) {
                if (!fits || (of == S && number > INT64_MAX / 1000)) return NO_TIME;
                *found = of == MS ? number : of == S ? number * 1000 : number / 1000;
                return UTC;
        }
        if (!fits || number > 1LL << 53 || exponent < -22 || exponent > 22) return LONG;
        double value = exponent < 0 ? (double)number / tens[-exponent] : (double)number * tens[exponent];
        if (of == S) value *= 1e6;
        if (value >= 9e18) return NO_TIME;
        *found = (int64_t)value;
        if (of == S) *found = (*found + (value - (double)*found >= 0.5)) / 1000;
        if (of == US) *found /= 1000;
        return UTC;
}

/* Read each text of a column as a time.
 *
 * texts   a column of strings, perhaps with nulls, which are no times       rows   how many
 * found   the times, all written: milliseconds, or microseconds where it is local; 0 where there is none
 * what    rows bytes, all written, as above */
TC_EXPORT void tc_times(const tc_column *texts, int64_t rows, int32_t of, int64_t *found, uint8_t *what) {
        for (int64_t row = 0; row < rows; row++) {
                tc_bytes_at text = tc_bytes_of(texts, row);
                found[row] = 0;
                what[row] = NO_TIME;
                if (!text.at) continue;
                rest all = {text.at, text.at + text.size};
                what[row] = (uint8_t)read_number(all, (unit)of, found + row);
                if (what[row] == NO_TIME) what[row] = (uint8_t)read_date(all, found + row);
                if (what[row] == NO_TIME || what[row] == LONG) found[row] = 0;
        }
}
