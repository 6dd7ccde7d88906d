"use strict";
/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The capture: pcapng blocks, shortened (shorten.c), as records in the order of time. What a header looks
 * like is read from the formats that the page holds (formats.c). Times are ns since the first record.
 */

const FIRST = 1,
	LAST = 2,
	REQUEST = 4,
	RECEIVE = 16; /* an opcode's flags */
const OPERATIONS = [
	"SEND",
	"WRITE",
	"READ",
	"READ_RESPONSE",
	"ACK",
	"ATOMIC_ACK",
	"ATOMIC",
	"ATOMIC_WRITE",
	"FLUSH",
	"CNP",
];
const BLOCK = { SECTION: 0x0a0d0d0a, INTERFACE: 1, STATISTICS: 5, PACKET: 6, EVENT: 0x80007662 };
const EVENT = {}; /* kinds of events: the formats have them */
const EVENT_WORDS = {
	POST_SEND: "post",
	POST_RECEIVE: "post receive",
	COMPLETION: "completion",
	POLL: "polled",
	SENTENCE: "says",
	CM: "event",
};
const eventWord = kind =>
	EVENT_WORDS[Object.keys(EVENT).find(name => EVENT[name] === kind)] ?? "event " + kind;
const FAULT = { IN: 1, LOST: 2, CHANGED: 4, TWICE: 8, LATE: 16 }; /* flags of a fault's event */
const OUT = 2,
	WAY = 3, /* bits of the flags of a packet's block */
	GSI = 1,
	ROCE_PORT = 4791,
	MAD_HEADER = 24;
const IS_RECEIVE = 1,
	IS_SHARED = 2, /* flags of a completion, of a posted receive */
	PIECES = 16; /* flags of a post: their number from this bit on */

/* What was done to a packet on purpose. */
function faultWords({ flags, held }) {
	const isIn = flags & FAULT.IN;
	return [
		flags & FAULT.CHANGED ? "changed" : "",
		flags & FAULT.LOST ? "dropped" : "",
		flags & FAULT.TWICE ? (isIn ? "delivered twice" : "sent twice") : "",
		flags & FAULT.LATE ? "held back for " + duration(held) : "",
	].filter(Boolean);
}

/* How far a field reaches, in bytes from the beginning of its header. */
const endOf = ([, byte, bit, width]) => byte + (width < 0 ? -width / 8 : (bit + width + 7) >> 3);

function bytesOfBase64(text) {
	const raw = atob(text),
		bytes = new Uint8Array(raw.length);
	for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
	return bytes;
}

class Formats {
	constructor(json) {
		Object.assign(EVENT, json.events);
		this.opcodes = json.opcodes;
		this.headers = json.headers;
		this.messages = json.messages;
		this.nak = json.nak;
		this.reject = json.reject;
		this.work = json.work;
		this.statuses = json.statuses;
		this.rnr_ns = json.rnr_ns;
		this.byName = new Map();
		for (const [name, table] of Object.entries(json.headers)) this.index(name, table);
		for (const [name, table] of Object.values(json.messages)) this.index(name, table);
	}
	index(name, [, ...rows]) {
		for (const row of rows) this.byName.set(name + "." + row[0], row);
	}
}

class Capture {
	constructor(bytes, formats) {
		this.bytes = bytes;
		this.view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
		this.formats = formats;
		this.processes = [];
		this.records = [];
		this.packets = 0;
		this.dropped = 0;
		this.decoder = new TextDecoder("utf-8", { ignoreBOM: true }); /* names may begin with one */
		this.addresses = new Map();
		this.readBlocks();
		this.sort();
	}

	u16(at) {
		return this.view.getUint16(at, true);
	}
	u32(at) {
		return this.view.getUint32(at, true);
	}
	u64(at) {
		return this.view.getBigUint64(at, true);
	}

	readBlocks() {
		let first = 0;
		for (let at = 0; at + 12 <= this.bytes.length;) {
			const type = this.u32(at),
				length = this.u32(at + 4),
				end = at + length - 4;
			if (length < 12 || end + 4 > this.bytes.length) break;
			if (type === BLOCK.SECTION)
				first = this.processes.length; /* each section counts its interfaces anew */
			else if (type === BLOCK.INTERFACE) this.readInterface(at + 8, end);
			else if (type === BLOCK.PACKET) this.readPacket(at + 8, end, first);
			else if (type === BLOCK.EVENT) this.readEvent(at + 8, end, first);
			else if (type === BLOCK.STATISTICS)
				this.dropped += Number(this.options(at + 20, end, 5) ?? 0n);
			at += length;
		}
	}

	/* What processes say, without the zeros behind it, and as XML can have it: pictures are XML. */
	text(from, to) {
		return this.decoder
			.decode(this.bytes.subarray(from, to))
			.replace(/\0+$/, "")
			.replace(/[\0-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ufffe\uffff]/g, "\ufffd");
	}

	/* An option's value as text (comment, name) or number; undefined if it is not there. */
	options(at, end, wanted, isText) {
		while (at + 4 <= end) {
			const code = this.u16(at),
				length = this.u16(at + 2);
			if (at + 4 + length > end) break;
			if (code === wanted && isText) return this.text(at + 4, at + 4 + length);
			if (code === wanted)
				return length === 8
					? this.u64(at + 4)
					: length === 4
						? BigInt(this.u32(at + 4))
						: BigInt(this.bytes[at + 4]);
			if (!code) break;
			at += 4 + ((length + 3) & ~3);
		}
		return undefined;
	}

	readInterface(at, end) {
		const resolution = Number(this.options(at + 8, end, 9) ?? 6n);
		this.processes.push({
			index: this.processes.length,
			name: this.options(at + 8, end, 2, true) ?? "?",
			/* a power of 10, or of 2 if the highest bit is set */
			ticksPerSecond: (resolution & 128 ? 2n : 10n) ** BigInt(resolution & 127),
		});
	}

	time(at, process) {
		const ticks = (BigInt(this.u32(at)) << 32n) | BigInt(this.u32(at + 4));
		const ns = (ticks * 1000000000n) / process.ticksPerSecond;
		this.begin ??= ns;
		return Number(ns - this.begin);
	}

	readPacket(at, end, first) {
		const process = this.processes[first + this.u32(at)],
			kept = this.u32(at + 12);
		const ip = at + 20,
			options = ip + ((kept + 3) & ~3);
		const p = {
			kind: "packet",
			number: ++this.packets,
			t: this.time(at + 4, process),
			process,
			ip,
			kept,
			length: this.u32(at + 16),
			out: (Number(this.options(options, end, 2) ?? 0n) & WAY) === OUT,
			comment: this.options(options, end, 1, true) ?? "",
			dropped: Number(this.options(options, end, 4) ?? 0n),
		};
		this.readHeaders(p);
		this.records.push(p);
	}

	address(at, bytes) {
		const key = this.bytes.subarray(at, at + bytes).join(".");
		let text = this.addresses.get(key);
		if (text === undefined) {
			text = bytes === 4 ? key : this.ipv6(at);
			this.addresses.set(key, text);
		}
		return text;
	}
	ipv6(at) {
		const words = [];
		for (let i = 0; i < 8; i++) words.push(this.view.getUint16(at + 2 * i).toString(16));
		const longest = (":" + words.join(":") + ":")
			.match(/(:0)+:/g)
			?.sort((a, b) => b.length - a.length)[0];
		const all = words.join(":");
		return longest && longest.length > 3
			? (":" + all + ":").replace(longest, "::").replace(/^:(?!:)|(?<!:):$/g, "")
			: all;
	}

	/* A field of a header that begins there, as a number; 64 bits as BigInt. */
	field(name, at) {
		const [, byte, bit, width] = this.formats.byName.get(name);
		let v = 0n;
		const span = (bit + width + 7) >> 3;
		for (let i = 0; i < span; i++) v = (v << 8n) | BigInt(this.bytes[at + byte + i]);
		v = (v >> BigInt(span * 8 - bit - width)) & ((1n << BigInt(width)) - 1n);
		return width > 32 ? v : Number(v);
	}
	/* The same if the packet has all of it; undefined: it was cut before. */
	fieldIn(p, name, at) {
		return at + endOf(this.formats.byName.get(name)) <= p.end ? this.field(name, at) : undefined;
	}
	b24(at) {
		return (this.bytes[at] << 16) | (this.bytes[at + 1] << 8) | this.bytes[at + 2];
	}

	/* What the recorder says of it, without the names of processes, which may be any text. */
	readComment(p) {
		const named = p.comment.replace(/^(from|to) /, ""),
			said = named.startsWith(p.process.name) ? named.slice(p.process.name.length) : named;
		p.way = said.startsWith(", through shared memory")
			? "local"
			: said.startsWith(", handed over")
				? "inbox"
				: "wire";
		p.bad = said.endsWith("; dropped: its ICRC is wrong");
		p.injected = said.endsWith("; lost on purpose");
		p.own = Number(said.match(/^, [^,]*, QP (0x[0-9a-f]+)/)?.[1] ?? 0);
	}

	readHeaders(p) {
		const v6 = this.bytes[p.ip] >> 4 === 6;
		p.bth = p.ip + (v6 ? 40 : 20) + 8;
		p.end = p.ip + p.kept;
		this.readComment(p);
		p.src = p.dst = "?";
		if (p.bth > p.end) return;
		p.src = v6 ? this.address(p.ip + 8, 16) : this.address(p.ip + 12, 4);
		p.dst = v6 ? this.address(p.ip + 24, 16) : this.address(p.ip + 16, 4);
		if (p.bth + 12 > p.end) return;
		p.opcode = this.bytes[p.bth];
		p.dqpn = this.b24(p.bth + 5);
		p.psn = this.b24(p.bth + 9);
		p.asks = this.bytes[p.bth + 8] >> 7;
		const row = this.formats.opcodes[p.opcode];
		if (!row) return;
		[p.service, p.name, p.operation, p.flags] = row;
		p.operation = OPERATIONS[p.operation];
		this.readExtensions(p, row[4]);
	}

	readExtensions(p, extensions) {
		let at = p.bth + 12;
		for (const name of extensions) {
			if (at + this.formats.headers[name][0] > p.end) return;
			if (name === "DETH") p.sqpn = this.field("DETH.source_qpn", at);
			else if (name === "RETH") p.bytes = this.field("RETH.length", at);
			else if (name === "AETH") p.syndrome = this.bytes[at];
			at += this.formats.headers[name][0];
		}
		p.payload = at;
		p.payloadBytes = Math.max(0, p.length - (at - p.ip) - 4 - ((this.bytes[p.bth + 1] >> 4) & 3));
		if (p.dqpn === GSI && p.payload + MAD_HEADER + 8 <= p.end) this.readMad(p);
	}

	readMad(p) {
		const attribute = this.field("MAD.attribute_id", p.payload),
			of = name => this.fieldIn(p, p.mad + "." + name, p.payload);
		p.mad = this.formats.messages[attribute]?.[0] ?? "MAD " + attribute;
		p.localId = this.view.getUint32(p.payload + MAD_HEADER);
		p.remoteId =
			p.mad === "REQ" || p.mad === "SIDR_REQ"
				? 0
				: this.view.getUint32(p.payload + MAD_HEADER + 4);
		p.transaction = this.view.getBigUint64(p.payload + 8);
		if (p.mad === "REQ" || p.mad === "REP") p.cmQpn = of("local_qpn");
		if (p.mad === "REJ") p.reason = of("reason");
	}

	/* host/inspect.h: struct vb_capture_event behind interface and time */
	readEvent(at, end, first) {
		const process = this.processes[first + this.u32(at)],
			e = at + 12;
		this.records.push({
			kind: "event",
			t: this.time(at + 4, process),
			process,
			event: this.u32(e),
			qpn: this.u32(e + 4),
			wr: this.u64(e + 8),
			opcode: this.u32(e + 16),
			flags: this.u32(e + 20),
			status: this.u32(e + 24),
			bytes: this.u32(e + 28),
			address: this.u64(e + 32),
			rkey: this.u32(e + 40),
			queue: this.u32(e + 44),
			text: this.text(e + 48, end),
		});
	}

	/*
	 * Sorts, at the same time what goes out first, gives packets their faults, and lets times begin with
	 * the first record.
	 */
	sort() {
		this.records.sort((a, b) => a.t - b.t || (b.out === true) - (a.out === true));
		this.hasFaults = this.records.some(r => r.event === EVENT.FAULT);
		if (this.hasFaults) this.giveFaults();
		const begin = this.records[0]?.t ?? 0;
		if (begin) this.begin += BigInt(begin);
		this.records.forEach((r, i) => {
			r.t -= begin;
			r.id = i;
		});
		this.span = this.records.at(-1)?.t ?? 0;
	}

	/* A fault is a member of its packet, the last one like that before it, and no record. */
	giveFaults() {
		const last = new Map(),
			keyOf = (process, ...rest) => [process.index, ...rest].join(" ");
		this.records = this.records.filter(r => {
			if (r.event === EVENT.FAULT) {
				const isOut = !(r.flags & FAULT.IN),
					p = last.get(keyOf(r.process, isOut, r.queue, r.opcode, r.bytes));
				if (p) p.fault = { flags: r.flags, held: Number(r.address) };
			} else if (r.kind === "packet") {
				last.set(keyOf(r.process, r.out, r.dqpn, r.opcode, r.psn), r);
			}
			return r.event !== EVENT.FAULT;
		});
	}

	/* All fields of a packet: [[header, [[name, value], ...]], ...]. */
	fields(p) {
		const found = [
			[
				"Packet",
				[
					["number", p.number],
					["time", this.date(p.t)],
					["process", p.process.name],
					["direction", p.out ? "out" : "in"],
					["comment", p.comment],
					...(p.fault ? [["on purpose", faultWords(p.fault).join(", ")]] : []),
					["bytes", p.length],
					...(p.dropped ? [["not captured before it", p.dropped]] : []),
				],
			],
		];
		found.push(this.ipFields(p));
		if (p.opcode === undefined) return found;
		found.push(["BTH", this.rows(p, "BTH", this.formats.headers.BTH, p.bth)]);
		let at = p.bth + 12;
		for (const name of this.formats.opcodes[p.opcode]?.[4] ?? []) {
			const table = this.formats.headers[name];
			if (at + table[0] > p.end) return found;
			found.push([name, this.rows(p, name, table, at)]);
			at += table[0];
		}
		if (p.mad) this.madFields(p, found);
		else if (p.payloadBytes)
			found.push([
				"Payload",
				[
					["bytes", p.payloadBytes],
					[
						"begins",
						this.hex(
							p.payload,
							Math.min(16, p.payloadBytes, p.end - p.payload)
						),
					],
				],
			]);
		return found;
	}
	ipFields(p) {
		const v6 = this.bytes[p.ip] >> 4 === 6,
			udp = p.bth - 8;
		if (p.bth > p.end) return ["IP", [["bytes that are kept", p.kept]]];
		const common = [
			["source", p.src],
			["destination", p.dst],
			["source port", this.view.getUint16(udp)],
			["destination port", this.view.getUint16(udp + 2)],
		];
		const own = v6
			? [
					["traffic class", (this.view.getUint16(p.ip) >> 4) & 255],
					[
						"flow label",
						"0x" + (this.view.getUint32(p.ip) & 0xfffff).toString(16),
					],
					["hop limit", this.bytes[p.ip + 7]],
				]
			: [
					["type of service", this.bytes[p.ip + 1]],
					["identification", this.view.getUint16(p.ip + 4)],
					["time to live", this.bytes[p.ip + 8]],
				];
		return [v6 ? "IPv6 and UDP" : "IPv4 and UDP", [...common, ...own]];
	}
	madFields(p, found) {
		const message = Object.values(this.formats.messages).find(([name]) => name === p.mad);
		found.push(["MAD", this.rows(p, "MAD", this.formats.messages[0][1], p.payload)]);
		if (message) found.push([p.mad, this.rows(p, p.mad, message[1], p.payload)]);
	}
	/* Those that the packet still has, if it was cut. */
	rows(p, name, [, ...rows], at) {
		return rows
			.filter(row => at + endOf(row) <= p.end)
			.map(([field, byte, , width]) => [
				field,
				width < 0
					? this.hex(at + byte, -width / 8)
					: this.value(name, field, this.field(name + "." + field, at)),
			]);
	}
	value(header, field, v) {
		if (field === "opcode")
			return v + " (" + (this.formats.opcodes[v]?.slice(0, 2).join(" ") ?? "?") + ")";
		if (field === "syndrome")
			return "0x" + v.toString(16).padStart(2, "0") + " (" + this.syndrome(v) + ")";
		if (header === "REJ" && field === "reason")
			return v + " (" + (this.formats.reject[v] ?? "?") + ")";
		if (/key|qpn|address|guid|id$/.test(field)) return "0x" + v.toString(16);
		return String(v);
	}
	syndrome(v) {
		const kind = v >> 5,
			value = v & 31;
		if (kind === 0) return value === 31 ? "ACK" : "ACK, credits " + value;
		if (kind === 1) return "RNR NAK, wait " + duration(this.formats.rnr_ns[value]);
		return kind === 3 ? "NAK: " + (this.formats.nak[value] ?? value) : "?";
	}
	hex(at, bytes) {
		return [...this.bytes.subarray(at, Math.min(at + bytes, this.bytes.length))]
			.map(b => b.toString(16).padStart(2, "0"))
			.join(" ");
	}
	date(t) {
		const ns = this.begin + BigInt(Math.round(t)),
			date = new Date(Number(ns / 1000000n));
		if (Number.isNaN(date.getTime())) return ns + " ns";
		return (
			date.toISOString().slice(0, -1).replace("T", " ") +
			String(ns % 1000000n).padStart(6, "0") +
			" UTC"
		);
	}
}

/* Three digits and a unit. */
function duration(ns) {
	for (const [size, unit] of [
		[1e9, "s"],
		[1e6, "ms"],
		[1e3, "µs"],
	])
		if (ns >= size * 0.9995) return Number((ns / size).toPrecision(3)) + " " + unit;
	return Math.round(ns) + " ns";
}
