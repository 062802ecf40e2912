// CRC-32 as zlib's crc32 computes it, but by the processor's carry-less multiplication where there is one: checksums would else
// cost the spool more than all its other work.
#ifndef SL_STORAGE_CRC_H
#define SL_STORAGE_CRC_H

#include <stddef.h>
#include <stdint.h>

// Goes on from `crc`, 0 at the start.
uint32_t crc_update(uint32_t crc, const void *bytes, size_t length);

#endif
