#include "sample/philox.h"

void sn_philox4x32(uint32_t c[4], const uint32_t key[2])
{
    uint32_t k0 = key[0], k1 = key[1];
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c[0], p1 = (uint64_t)0xCD9E8D57u * c[2];
        uint32_t n0 = (uint32_t)(p1 >> 32) ^ c[1] ^ k0, n2 = (uint32_t)(p0 >> 32) ^ c[3] ^ k1;
        c[1] = (uint32_t)p1;
        c[3] = (uint32_t)p0;
        c[0] = n0;
        c[2] = n2;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
}

float sn_draw(uint64_t seed, uint32_t choice, uint64_t step)
{
    uint32_t counter[4] = {(uint32_t)step, (uint32_t)(step >> 32), choice, 0};
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    sn_philox4x32(counter, key);
    return (float)(counter[0] >> 8) * 0x1p-24f;
}
