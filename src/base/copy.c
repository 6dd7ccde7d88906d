/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/copy.h"

#if defined(__x86_64__)
#include <cpuid.h>

enum { HYPERVISOR_LEAF = 0x40000000, IS_VIRTUAL = 1u << 31 };

bool vb_copy_is_by_words;

void vb_copy_words(void *to, const void *from, size_t bytes)
{
	size_t words = bytes / 8;
	__asm__ volatile("rep movsq" : "+D"(to), "+S"(from), "+c"(words) : : "memory");
	memcpy(to, from, bytes % 8);
}

/* qemu's emulator names itself where hypervisors do. */
__attribute__((constructor)) static void look_at_processor(void)
{
	uint32_t a, b, c = 0, d, name[3];
	if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & IS_VIRTUAL))
		return;
	__cpuid(HYPERVISOR_LEAF, a, name[0], name[1], name[2]);
	vb_copy_is_by_words = memcmp(name, "TCGTCGTCGTCG", sizeof(name)) == 0;
}

#else

bool vb_copy_is_by_words;

void vb_copy_words(void *to, const void *from, size_t bytes)
{
	memcpy(to, from, bytes);
}

#endif
