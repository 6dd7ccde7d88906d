/* SPDX-License-Identifier: BSD-2-Clause */
/* Whether a test was built with a sanitizer of memory or of threads. */
#pragma once

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif

/* Reasons to skip a case. */
#define SANITIZERS_LOSE_THREADS "sanitizers do not follow a thread that leaves its stack by cancellation"
#define SANITIZERS_TAKE_ROOM "sanitizers take more address space than that"
#define SANITIZERS_HIDE_LOCKS "sanitizers do not see locks that are taken below their own poll()"
#define SANITIZERS_REFUSE_FAULTS "sanitizers refuse what this program does wrong"
