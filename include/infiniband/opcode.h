/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Opcodes of the base transport header (volume 1, table 38): three bits of transport and five of operation.
 * A packet's opcode is one of the sums IBV_OPCODE_<transport>_<operation>.
 */
#ifndef INFINIBAND_OPCODE_H
#define INFINIBAND_OPCODE_H

/* The enumerator for an operation of a transport. */
#define IBV_OPCODE(transport, op) \
	IBV_OPCODE_ ## transport ## _ ## op = IBV_OPCODE_ ## transport | IBV_OPCODE_ ## op

/* The operations that every connected transport has. */
#define IBV_OPCODES_CONNECTED_(transport)			\
	IBV_OPCODE(transport, SEND_FIRST),			\
	IBV_OPCODE(transport, SEND_MIDDLE),			\
	IBV_OPCODE(transport, SEND_LAST),			\
	IBV_OPCODE(transport, SEND_LAST_WITH_IMMEDIATE),	\
	IBV_OPCODE(transport, SEND_ONLY),			\
	IBV_OPCODE(transport, SEND_ONLY_WITH_IMMEDIATE),	\
	IBV_OPCODE(transport, RDMA_WRITE_FIRST),		\
	IBV_OPCODE(transport, RDMA_WRITE_MIDDLE),		\
	IBV_OPCODE(transport, RDMA_WRITE_LAST),			\
	IBV_OPCODE(transport, RDMA_WRITE_LAST_WITH_IMMEDIATE),	\
	IBV_OPCODE(transport, RDMA_WRITE_ONLY),			\
	IBV_OPCODE(transport, RDMA_WRITE_ONLY_WITH_IMMEDIATE)

/* Those that are answered, on reliable transports only. */
#define IBV_OPCODES_RELIABLE_(transport)			\
	IBV_OPCODE(transport, RDMA_READ_REQUEST),		\
	IBV_OPCODE(transport, RDMA_READ_RESPONSE_FIRST),	\
	IBV_OPCODE(transport, RDMA_READ_RESPONSE_MIDDLE),	\
	IBV_OPCODE(transport, RDMA_READ_RESPONSE_LAST),		\
	IBV_OPCODE(transport, RDMA_READ_RESPONSE_ONLY),		\
	IBV_OPCODE(transport, ACKNOWLEDGE),			\
	IBV_OPCODE(transport, ATOMIC_ACKNOWLEDGE),		\
	IBV_OPCODE(transport, COMPARE_SWAP),			\
	IBV_OPCODE(transport, FETCH_ADD)

enum {
	/* transports */
	IBV_OPCODE_RC				= 0 << 5,
	IBV_OPCODE_UC				= 1 << 5,
	IBV_OPCODE_RD				= 2 << 5,
	IBV_OPCODE_UD				= 3 << 5,

	/* operations */
	IBV_OPCODE_SEND_FIRST			= 0,
	IBV_OPCODE_SEND_MIDDLE			= 1,
	IBV_OPCODE_SEND_LAST			= 2,
	IBV_OPCODE_SEND_LAST_WITH_IMMEDIATE	= 3,
	IBV_OPCODE_SEND_ONLY			= 4,
	IBV_OPCODE_SEND_ONLY_WITH_IMMEDIATE	= 5,
	IBV_OPCODE_RDMA_WRITE_FIRST		= 6,
	IBV_OPCODE_RDMA_WRITE_MIDDLE		= 7,
	IBV_OPCODE_RDMA_WRITE_LAST		= 8,
	IBV_OPCODE_RDMA_WRITE_LAST_WITH_IMMEDIATE = 9,
	IBV_OPCODE_RDMA_WRITE_ONLY		= 10,
	IBV_OPCODE_RDMA_WRITE_ONLY_WITH_IMMEDIATE = 11,
	IBV_OPCODE_RDMA_READ_REQUEST		= 12,
	IBV_OPCODE_RDMA_READ_RESPONSE_FIRST	= 13,
	IBV_OPCODE_RDMA_READ_RESPONSE_MIDDLE	= 14,
	IBV_OPCODE_RDMA_READ_RESPONSE_LAST	= 15,
	IBV_OPCODE_RDMA_READ_RESPONSE_ONLY	= 16,
	IBV_OPCODE_ACKNOWLEDGE			= 17,
	IBV_OPCODE_ATOMIC_ACKNOWLEDGE		= 18,
	IBV_OPCODE_COMPARE_SWAP			= 19,
	IBV_OPCODE_FETCH_ADD			= 20,

	/* opcodes */
	IBV_OPCODES_CONNECTED_(RC),
	IBV_OPCODES_RELIABLE_(RC),
	IBV_OPCODES_CONNECTED_(UC),
	IBV_OPCODES_CONNECTED_(RD),
	IBV_OPCODES_RELIABLE_(RD),
	IBV_OPCODE(UD, SEND_ONLY),
	IBV_OPCODE(UD, SEND_ONLY_WITH_IMMEDIATE),
};

#endif /* INFINIBAND_OPCODE_H */
