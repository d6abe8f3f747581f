/* A wall clock that is off by the seconds in the file STEPPED_CLOCK, read at each look; the others are the system's.
 * Waits until a time of the wall clock end when it shows that time.
 * It allocates nothing, and so also works in servers whose allocator reads the clock before anything else. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <threads.h>
#include <time.h>
#include <unistd.h>

enum { OF_THE_WALL = 1000000000 }; /* seconds; the monotonic clock, which began with the machine, shows less */

static int (*cond_wait)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
static int (*cnd_wait_until)(cnd_t *, mtx_t *, const struct timespec *);
static int (*sem_wait_until)(sem_t *, const struct timespec *);

__attribute__((constructor)) static void find(void) {
    /* There is an older function of this name, for conditions of another form. */
    *(void **)&cond_wait = dlvsym(RTLD_NEXT, "pthread_cond_timedwait", "GLIBC_2.3.2");
    if (!cond_wait) *(void **)&cond_wait = dlsym(RTLD_NEXT, "pthread_cond_timedwait");
    *(void **)&cnd_wait_until = dlsym(RTLD_NEXT, "cnd_timedwait");
    *(void **)&sem_wait_until = dlsym(RTLD_NEXT, "sem_timedwait");
}

static long off_s(void) {
    char text[32] = "";
    const char *name = getenv("STEPPED_CLOCK");
    int file = name ? (int)syscall(SYS_openat, AT_FDCWD, name, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) return 0;
    long got = syscall(SYS_read, file, text, sizeof text - 1);
    syscall(SYS_close, file);
    return got > 0 ? atol(text) : 0;
}

/* When the system's clock shows what the stepped one shows at that time. */
static struct timespec true_time(const struct timespec *at) {
    struct timespec found = *at;
    if (found.tv_sec > OF_THE_WALL) found.tv_sec -= off_s();
    return found;
}

int clock_gettime(clockid_t clock, struct timespec *at) {
    int failed = (int)syscall(SYS_clock_gettime, clock, at);
    if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) at->tv_sec += off_s();
    return failed;
}

int gettimeofday(struct timeval *at, void *zone) {
    (void)zone;
    struct timespec now;
    int failed = clock_gettime(CLOCK_REALTIME, &now);
    at->tv_sec = now.tv_sec;
    at->tv_usec = now.tv_nsec / 1000;
    return failed;
}

time_t time(time_t *at) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (at) *at = now.tv_sec;
    return now.tv_sec;
}

int timespec_get(struct timespec *at, int base) {
    return base == TIME_UTC && !clock_gettime(CLOCK_REALTIME, at) ? base : 0;
}

int pthread_cond_timedwait(pthread_cond_t *condition, pthread_mutex_t *mutex, const struct timespec *until) {
    struct timespec at = true_time(until);
    return cond_wait(condition, mutex, &at);
}

int cnd_timedwait(cnd_t *restrict condition, mtx_t *restrict mutex, const struct timespec *restrict until) {
    struct timespec at = true_time(until);
    return cnd_wait_until(condition, mutex, &at);
}

int sem_timedwait(sem_t *semaphore, const struct timespec *until) {
    struct timespec at = true_time(until);
    return sem_wait_until(semaphore, &at);
}
