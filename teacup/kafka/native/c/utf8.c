#include "utf8.h"

bool tc_is_utf8(const char *from, size_t size) {
        const unsigned char *at = (const unsigned char *)from, *end = at + size;
        while (at < end) {
                unsigned lead = *at++, low = 0x80, high = 0xBF;
                if (lead < 0x80) continue;
                int more = lead >= 0xC2 && lead <= 0xDF ? 1 : lead >= 0xE0 && lead <= 0xEF ? 2 : lead >= 0xF0 && lead <= 0xF4 ? 3 : 0;
                if (!more || end - at < more) return false;
                if (lead == 0xE0) low = 0xA0; /* shorter forms, surrogates, and what is above U+10FFFF */
                if (lead == 0xED) high = 0x9F;
                if (lead == 0xF0) low = 0x90;
                if (lead == 0xF4) high = 0x8F;
                for (; more; more--, at++, low = 0x80, high = 0xBF)
                        if (*at < low || *at > high) return false;
        }
        return true;
}
