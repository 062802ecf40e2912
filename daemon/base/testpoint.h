// Testpoints: places where a test stops or kills the daemon, one after each effect that outlives it. Each is a nop in the
// code and an ELF note that names it (systemtap-sdt, `readelf -n`), always compiled in.
#ifndef SL_BASE_TESTPOINT_H
#define SL_BASE_TESTPOINT_H

#include <sys/sdt.h>

// The barriers keep the compiler from moving an effect past its testpoint.
#define TESTPOINT(name)                          \
    do {                                         \
        __atomic_signal_fence(__ATOMIC_SEQ_CST); \
        STAP_PROBE(scoped_laned, name);          \
        __atomic_signal_fence(__ATOMIC_SEQ_CST); \
    } while (0)

#endif
