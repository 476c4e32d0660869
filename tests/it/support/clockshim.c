/* A wall clock that can be stepped: adds an offset to the real time clocks and leaves the monotonic ones alone.
 *
 * Preloaded into a process. The offset, in nanoseconds, is a native 64-bit integer in the file that
 * CLOCKSHIM_OFFSET_FILE names; the file is mapped, so a write to it shows at once in every process.
 * A general time faker would not do: bending the monotonic clocks or timers too, it keeps PostgreSQL's timeouts from
 * firing. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define SECOND INT64_C(1000000000)

static const int64_t *offset;

__attribute__((constructor)) static void map_offset(void)
{
    const char *name = getenv("CLOCKSHIM_OFFSET_FILE");
    if (name == NULL)
        return;
    int file = open(name, O_RDONLY | O_CLOEXEC);
    void *mapped = file < 0 ? MAP_FAILED : mmap(NULL, sizeof *offset, PROT_READ, MAP_SHARED, file, 0);
    if (mapped == MAP_FAILED) {
        perror(name); /* a clock silently right would make tests pass that should not */
        _exit(97);
    }
    close(file);
    offset = mapped;
}

static int read_clock(clockid_t clock, struct timespec *now)
{
    int answer = (int)syscall(SYS_clock_gettime, clock, now);
    if (answer == 0 && offset != NULL && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
        int64_t add = __atomic_load_n(offset, __ATOMIC_RELAXED);
        int64_t nanos = now->tv_nsec + add % SECOND;
        now->tv_sec += add / SECOND;
        if (nanos < 0 || nanos >= SECOND) {
            now->tv_sec += nanos < 0 ? -1 : 1;
            nanos += nanos < 0 ? SECOND : -SECOND;
        }
        now->tv_nsec = nanos;
    }
    return answer;
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    return read_clock(clock, now);
}

int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
    struct timespec precise;
    (void)zone;
    if (read_clock(CLOCK_REALTIME, &precise) != 0)
        return -1;
    now->tv_sec = precise.tv_sec;
    now->tv_usec = precise.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *seconds)
{
    struct timespec precise;
    if (read_clock(CLOCK_REALTIME, &precise) != 0)
        return (time_t)-1;
    if (seconds != NULL)
        *seconds = precise.tv_sec;
    return precise.tv_sec;
}
