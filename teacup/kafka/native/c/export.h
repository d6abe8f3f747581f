/* What Python calls. Everything else stays within the library. */
#ifndef TC_EXPORT_H
#define TC_EXPORT_H

#define TC_EXPORT __attribute__((visibility("default")))

#endif
