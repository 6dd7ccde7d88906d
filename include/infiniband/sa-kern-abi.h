/* SPDX-License-Identifier: BSD-2-Clause */
/* Old names of the kernel's path record. New programs include <rdma/ib_user_sa.h> and use its names. */
#ifndef INFINIBAND_SA_KERN_ABI_H
#define INFINIBAND_SA_KERN_ABI_H

#warning "<infiniband/sa-kern-abi.h> only renames what <rdma/ib_user_sa.h> declares; include that"

#include <rdma/ib_user_sa.h>

#define ib_kern_path_rec	ib_user_path_rec
#define ibv_kern_path_rec	ib_user_path_rec

#endif /* INFINIBAND_SA_KERN_ABI_H */
