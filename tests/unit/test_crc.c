// Checksums: the fast way agrees with zlib's, whatever the length, the place and what came before.
#include <criterion/criterion.h>
#include <zlib.h>

#include "storage/crc.h"

static unsigned char bytes[70000];

static void fill(void)
{
    uint64_t state = 0x9e3779b97f4a7c15;
    for (size_t i = 0; i < sizeof bytes; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        bytes[i] = (unsigned char)(state >> 56);
    }
}

Test(crc, is_zlibs_for_every_length_and_place, .init = fill)
{
    for (size_t length = 0; length < 700; length++)
        for (size_t place = 0; place < 17; place++)
            cr_assert_eq(crc_update(0, bytes + place, length), crc32(0, bytes + place, (uInt)length), "%zu bytes at %zu", length, place);
    cr_assert_eq(crc_update(0, bytes, sizeof bytes), crc32(0, bytes, sizeof bytes));
}

Test(crc, goes_on_from_any_other, .init = fill)
{
    uint32_t whole = (uint32_t)crc32(0, bytes, 1000);
    for (size_t cut = 0; cut <= 1000; cut++)
        cr_assert_eq(crc_update(crc_update(0, bytes, cut), bytes + cut, 1000 - cut), whole, "cut at %zu", cut);
}

Test(crc, is_that_of_the_standard)
{
    cr_assert_eq(crc_update(0, "123456789", 9), 0xcbf43926u);
}
