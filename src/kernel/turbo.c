#include "kernel/turbo.h"

#include <math.h>

#include "kernel/turbo_tables.h"

bool sn_turbo_key_bits(unsigned bits)
{
    return bits == 2 || bits == 4 || bits == 5 || bits == 8;
}

bool sn_turbo_value_bits(unsigned bits)
{
    return bits == 3 || sn_turbo_key_bits(bits);
}

bool sn_turbo_dim(size_t d)
{
    return d == 64 || d == 128 || d == 256 || d == 512;
}

const float *sn_turbo_centroids(unsigned bits)
{
    switch (bits) {
    case 2:
        return centroids_2;
    case 3:
        return centroids_3;
    case 4:
        return centroids_4;
    case 5:
        return centroids_5;
    default:
        return centroids_8;
    }
}

const float *sn_turbo_thresholds(unsigned bits)
{
    switch (bits) {
    case 2:
        return thresholds_2;
    case 3:
        return thresholds_3;
    case 4:
        return thresholds_4;
    case 5:
        return thresholds_5;
    default:
        return thresholds_8;
    }
}

const uint16_t *sn_turbo_halves(void)
{
    return halves_8;
}

const uint64_t *sn_turbo_signs(size_t d)
{
    return d == 64 ? signs_64 : d == 128 ? signs_128 : d == 256 ? signs_256 : signs_512;
}

float sn_turbo_norm(size_t d)
{
    return d == 64 ? norm_64 : d == 128 ? norm_128 : d == 256 ? norm_256 : norm_512;
}
