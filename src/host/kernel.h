/* SPDX-License-Identifier: BSD-2-Clause */
/* Constants of the kernel that the headers of Ubuntu 22.04 or of glibc 2.31 lack. */
#ifndef VB_HOST_KERNEL_H
#define VB_HOST_KERNEL_H

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

#ifndef F_SEAL_FUTURE_WRITE /* Linux 5.1 */
#define F_SEAL_FUTURE_WRITE 0x0010
#endif
#ifndef MREMAP_DONTUNMAP /* Linux 5.7 */
#define MREMAP_DONTUNMAP 4
#endif
#ifndef MADV_POPULATE_READ /* Linux 5.14 */
#define MADV_POPULATE_READ  22
#define MADV_POPULATE_WRITE 23
#endif
#ifndef UFFD_FEATURE_WP_HUGETLBFS_SHMEM /* Linux 5.19 */
#define UFFD_FEATURE_WP_HUGETLBFS_SHMEM (1 << 12)
#endif
#ifndef USERFAULTFD_IOC_NEW /* Linux 6.1 */
#define USERFAULTFD_IOC_NEW _IO(0xaa, 0x00)
#endif
#ifndef MFD_NOEXEC_SEAL /* Linux 6.3, which complains about memfds without it */
#define MFD_NOEXEC_SEAL 0x0008u
#endif

#endif
