/* SPDX-License-Identifier: BSD-2-Clause */
/* cmocka 2 deprecates assert_in_range for names that older ones do not have. */
#ifndef VB_TEST_BETWEEN_H
#define VB_TEST_BETWEEN_H

#include <stdint.h>

#define assert_between(value, least, most)                                      \
	do {                                                                    \
		uintmax_t above = (uintmax_t)(value) - (uintmax_t)(least);      \
		assert_true(above <= (uintmax_t)(most) - (uintmax_t)(least));   \
	} while (0)

#endif
