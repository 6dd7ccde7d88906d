/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What records mean: which two ends a connection has, which departure an arrival is, which packets and
 * completions a request has, and where its time went.
 */

const PSNS = 0x1000000,
	HALF = 0x800000;
const FENCE = 1,
	SIGNALED = 2,
	INLINE = 8; /* enum ibv_send_flags */
const WORK = {
	WRITE: 0,
	WRITE_WITH_IMM: 1,
	SEND: 2,
	SEND_WITH_IMM: 3,
	READ: 4,
	COMPARE_SWAP: 5,
	FETCH_ADD: 6,
	LOCAL_INV: 7,
	BIND_MW: 8,
};
const FLUSHED = 5; /* IBV_WC_WR_FLUSH_ERR */
const RECEIVED = 128; /* IBV_WC_RECV: of a SEND */

const endKey = (address, qpn) => address + "/" + qpn;
const qpName = qpn => (qpn ? "QP 0x" + qpn.toString(16).padStart(6, "0") : "QP ?");

/* One end of a connection: a queue pair of a process, or what is known of a peer. */
class End {
	constructor(key, address, qpn) {
		Object.assign(this, {
			key,
			address,
			qpn,
			process: null,
			requests: [],
			open: [],
			posts: [],
			receives: [],
			next: 0,
			taking: [],
			taken: [],
			byPsn: new Map(),
			completions: [],
			has: { out: false, in: false },
		});
	}
	get name() {
		return this.process?.name ?? "not captured";
	}
}

class Connection {
	constructor(a, b) {
		Object.assign(this, {
			ends: [a, b],
			items: [],
			arrows: [],
			rows: [],
			requests: [],
			trouble: 0,
			packets: 0,
			isWire: false,
			service: "",
		});
	}
	side(end) {
		return end === this.ends[0] ? 0 : 1;
	}
}

class Model {
	constructor(capture) {
		this.capture = capture;
		this.ends = new Map();
		this.partners = new Map();
		this.connections = [];
		this.byKey = new Map();
		this.conversations = new Map();
		this.learnEnds();
		for (const r of capture.records) this.place(r);
		this.finishTalks();
		this.placeEvents();
		for (const c of this.connections) this.prepare(c);
		this.followAll();
		for (const c of this.connections) this.finish(c);
		this.connections.sort(
			(a, b) =>
				(b.requests.length > 0) - (a.requests.length > 0) ||
				a.rows[0].record.t - b.rows[0].record.t
		);
		this.connections.forEach((c, i) => {
			c.index = i;
		});
	}

	end(address, qpn) {
		const key = endKey(address, qpn);
		let e = this.ends.get(key);
		if (!e) this.ends.set(key, (e = new End(key, address, qpn)));
		return e;
	}

	/* Which queue pair talks to which, by what both say. */
	learnEnds() {
		for (const p of this.capture.records) {
			if (p.kind === "event" || p.opcode === undefined || p.dqpn === GSI) continue;
			const sqpn = p.sqpn ?? (p.out ? p.own : 0),
				from = sqpn && this.end(p.src, sqpn),
				to = this.end(p.dst, p.dqpn);
			if (from) {
				this.partners.set(to.key, from);
				this.partners.set(from.key, to);
			}
			const own = p.out ? from : to;
			if (!own) continue;
			own.process ??= p.process;
			own.has[p.out ? "out" : "in"] = true;
		}
	}

	connection(a, b) {
		const key = a.key < b.key ? a.key + " " + b.key : b.key + " " + a.key;
		let c = this.byKey.get(key);
		if (!c) {
			this.byKey.set(key, (c = new Connection(a, b)));
			this.connections.push(c);
			a.connection = b.connection = c;
		}
		return c;
	}

	place(r) {
		if (r.kind === "event") this.placeEvent(r);
		else if (r.mad) this.placeMad(r);
		else this.placePacket(r);
	}

	placePacket(p) {
		let from, to;
		if (p.opcode === undefined) {
			from = this.end(p.src, 0);
			to = this.end(p.dst, 0);
		} else {
			to = this.end(p.dst, p.dqpn);
			from =
				p.sqpn || (p.out && p.own)
					? this.end(p.src, p.sqpn || p.own)
					: (this.partners.get(to.key) ?? this.end(p.src, 0));
		}
		this.put(this.connection(from, to), p, from, to);
	}

	/* A conversation of the CM becomes part of the connection that it makes. */
	placeMad(p) {
		const mine = p.src + " " + p.localId,
			theirs = p.dst + " " + p.remoteId;
		let talk = this.conversations.get(mine) ?? this.conversations.get(theirs);
		if (!talk) talk = { packets: [], connection: null, qpn: {} };
		this.conversations.set(mine, talk);
		if (p.remoteId) this.conversations.set(theirs, talk);
		if (p.cmQpn) talk.qpn[p.mad] = [p.src, p.cmQpn, p.dst];
		if (p.mad === "REQ" && !talk.asker) talk.asker = p.src + " " + p.localId;
		talk.packets.push(p);
		p.fromAsker = talk.asker === mine;
		if (talk.connection) this.putMad(talk, p);
		else if (talk.qpn.REQ && talk.qpn.REP) {
			talk.ends = [
				this.end(talk.qpn.REQ[0], talk.qpn.REQ[1]),
				this.end(talk.qpn.REP[0], talk.qpn.REP[1]),
			];
			this.flush(talk);
		}
	}
	/* Who asked, and who answered: of an end without a queue pair its address. */
	flush(talk) {
		talk.connection = this.connection(...talk.ends);
		for (const p of talk.packets) this.putMad(talk, p);
	}
	putMad(talk, p) {
		const from = talk.ends[p.fromAsker ? 0 : 1],
			to = talk.ends[p.fromAsker ? 1 : 0];
		(p.out ? from : to).process ??= p.process;
		(p.out ? from : to).has[p.out ? "out" : "in"] = true;
		this.put(talk.connection, p, from, to);
	}
	/* Conversations that came to nothing. */
	finishTalks() {
		for (const talk of new Set(this.conversations.values())) {
			if (talk.connection) continue;
			const p = talk.packets[0],
				asker = p.fromAsker || p.mad === "SIDR_REQ";
			const [a, b] = asker ? [p.src, p.dst] : [p.dst, p.src],
				id = asker ? p.localId : p.remoteId;
			talk.ends = [
				new End("cm " + a + " " + id, a, talk.qpn.REQ?.[1] ?? 0),
				new End("cm " + b + " of " + a + " " + id, b, 0),
			];
			this.flush(talk);
		}
	}

	put(c, p, from, to) {
		c.items.push({ record: p, from, to });
		c.packets++;
		c.isWire ||= p.way !== "local" && !p.mad;
		c.service ||= p.mad ? "" : (p.service ?? "");
	}

	placeEvent(e) {
		if (e.event === EVENT.SENTENCE && !e.qpn)
			e.qpn = parseInt(e.text.match(/QP (0x[0-9a-f]+)/)?.[1] ?? "0", 16);
		(this.waiting ??= []).push(e);
	}

	/* A shared receive is of the queue pair that completes it. */
	giveSharedReceives() {
		const posted = new Map();
		for (const e of this.waiting ?? []) {
			if (!(e.flags & IS_SHARED)) continue;
			const key = e.process.index + " " + e.wr;
			if (e.event === EVENT.POST_RECEIVE && !e.status)
				posted.has(key) ? posted.get(key).push(e) : posted.set(key, [e]);
			else if (e.event === EVENT.COMPLETION && e.flags & IS_RECEIVE) {
				const post = posted.get(key)?.shift();
				if (post) post.qpn = e.qpn;
			}
		}
	}
	/*
	 * Events of queue pairs go where their packets are; those of none to all of their process, and shared
	 * receives that nobody took to one.
	 */
	placeEvents() {
		this.giveSharedReceives();
		const byQp = new Map(),
			keyOf = (process, qpn) => process.index + " " + qpn;
		for (const c of this.connections)
			for (const e of c.ends)
				if (e.qpn && e.process && !byQp.has(keyOf(e.process, e.qpn)))
					byQp.set(keyOf(e.process, e.qpn), [c, e]);
		for (const r of this.waiting ?? []) {
			const key = keyOf(r.process, r.qpn);
			let at = byQp.get(key);
			if (!at && r.qpn && r.event !== EVENT.SENTENCE) {
				const end = new End("qp " + key, "", r.qpn),
					other = new End("peer of " + key, "", 0);
				at = [this.connection(end, other), end];
				byQp.set(key, at);
			}
			if (at) {
				at[1].process ??= r.process;
				at[0].items.push({ record: r, from: at[1] });
				continue;
			}
			const own = this.connections.flatMap(c =>
				c.ends.filter(end => end.process === r.process).map(end => [c, end])
			);
			for (const [c, end] of r.event === EVENT.POST_RECEIVE ? own.slice(0, 1) : own)
				c.items.push({ record: r, from: end });
		}
		this.waiting = [];
	}

	prepare(c) {
		c.items.sort((a, b) => a.record.id - b.record.id);
		this.orient(c);
		this.matchArrows(c);
	}
	/* In the order of time over all connections: a queue pair for datagrams has many. */
	followAll() {
		const all = this.connections.flatMap(c => c.items.map(item => [c, item]));
		all.sort(([, a], [, b]) => a.record.id - b.record.id);
		for (const [c, item] of all) this.follow(c, item);
	}
	finish(c) {
		for (const end of c.ends) this.finishEnd(c, end);
		c.requests.sort((a, b) => a.begin - b.begin);
		c.items = null;
	}

	/* On the left is who asked for the connection, or who sent first. */
	orient(c) {
		const first =
			c.items.find(i => i.record.mad === "REQ") ?? c.items.find(i => i.to) ?? c.items[0];
		if (first && first.from !== c.ends[0] && c.ends[1] === first.from) c.ends.reverse();
	}

	/* ---- arrows ---- */

	matchArrows(c) {
		const flying = new Map();
		for (const item of c.items) {
			const p = item.record;
			const row = {
				record: p,
				side: c.side(p.kind === "event" || p.out ? item.from : item.to),
				index: c.rows.length,
			};
			c.rows.push(row);
			item.row = row;
			if (p.kind === "event") continue;
			const key = p.mad
				? p.mad + p.transaction + p.src
				: item.to.key + " " + p.psn + " " + p.opcode;
			const arrow = (!p.out && this.takeFlying(flying.get(key))) || {
				from: null,
				to: null,
				packet: p,
				fromSide: c.side(item.from),
			};
			arrow[p.out ? "from" : "to"] = row;
			row.arrow = item.arrow = arrow;
			if (arrow.from !== null && arrow.to !== null) continue;
			c.arrows.push(arrow);
			if (p.out && !p.injected)
				flying.has(key) ? flying.get(key).push(arrow) : flying.set(key, [arrow]);
		}
		for (const arrow of c.arrows) arrow.state = this.stateOf(c, arrow);
	}
	/* The last of the same that left and has not arrived. */
	takeFlying(list) {
		return list?.pop();
	}

	stateOf(c, arrow) {
		if (arrow.packet.injected || arrow.to?.record.fault?.flags & FAULT.LOST) return "injected";
		const p = arrow.packet,
			there = c.ends[arrow.from ? 1 - arrow.fromSide : arrow.fromSide];
		if (arrow.from && arrow.to) return arrow.to.record.bad ? "corrupt" : "arrived";
		if (p.way === "local")
			return "here"; /* this process has done it in shared memory: the peer has no part in it */
		const isSeen = there.process && (arrow.from ? there.has.in : there.has.out);
		if (!isSeen) return "unseen";
		return arrow.from ? "lost" : "unseen";
	}

	/* ---- requests ---- */

	follow(c, item) {
		const r = item.record;
		if (r.kind === "event") this.followEvent(c, item.from, r);
		else if (r.mad || r.opcode === undefined) this.followMad(c, item);
		else if (r.out) this.followOut(c, item);
		else this.followIn(c, item);
	}

	followMad(c, item) {
		const r = item.record;
		if (r.mad === "REJ" || isDropped(r)) item.row.trouble = true;
		item.arrow.again = r.mad && r.out && c.seenMads?.has(r.mad + r.transaction);
		if (r.out) (c.seenMads ??= new Set()).add(r.mad + r.transaction);
	}

	followOut(c, { record: p, from, to, row, arrow }) {
		if (!(p.flags & REQUEST)) {
			this.answerOut(to, p, arrow);
			return;
		}
		const before = from.byPsn.get(p.psn);
		if (before && p.service !== "UD" && before.operation === p.operation) {
			/* What a fault doubled or held back, the requester has not sent again. */
			arrow.again = !(p.fault?.flags & (FAULT.TWICE | FAULT.LATE));
			(arrow.again ? before.again : before.copies).push(row);
			row.request = before;
			before.lastSent = row;
			return;
		}
		let request = from.current;
		if (p.flags & FIRST || !request) request = from.current = this.begin(c, from, p, row);
		from.byPsn.set(p.psn, request);
		if (from.byPsn.size > 1 << 17) from.byPsn.delete(from.byPsn.keys().next().value);
		if ((p.psn - request.lastPsn + PSNS) % PSNS < HALF) request.lastPsn = p.psn;
		request.packets.push(row);
		request.lastSent = row;
		row.request = request;
		request.isWhole ||= Boolean(p.flags & LAST);
	}

	begin(c, end, p, row) {
		let request = this.postOf(end, p);
		if (!request) {
			request = this.request(c, end, p.t, p.operation);
			end.requests.push(request);
			c.requests.push(request);
		}
		Object.assign(request, {
			firstPsn: p.psn,
			lastPsn: p.psn,
			bytes: request.post ? request.bytes : (p.bytes ?? p.payloadBytes ?? 0),
			service: p.service,
		});
		end.open.push(request);
		return request;
	}
	request(c, end, begin, operation) {
		return {
			end,
			connection: c,
			begin,
			operation,
			packets: [],
			again: [],
			copies: [],
			rnr: [],
			refused: null,
			answer: null,
			post: null,
			completion: null,
			poll: null,
			bytes: 0,
			number: end.requests.length,
		};
	}

	/* The oldest post that has no packets yet, if it is of that kind. */
	postOf(end, p) {
		while (end.next < end.posts.length && end.posts[end.next].isQuiet) end.next++;
		const post = end.posts[end.next];
		if (!post || post.operation !== p.operation) return null;
		end.next++;
		return post;
	}

	/* An answer leaves the responder `from` for the requester. */
	answerOut(requester, p, arrow) {
		const request = this.requestOf(requester, p);
		if (request) request.served ??= p.t;
		arrow.request = request;
	}

	followIn(c, { record: p, to, row, arrow }) {
		if (isDropped(p)) {
			row.trouble = true;
			return;
		}
		if (p.flags & REQUEST) {
			this.requestIn(arrow, p, row, to);
			return;
		}
		const request = this.requestOf(to, p);
		row.request = request;
		if (!request) return;
		const kind = p.syndrome === undefined ? 0 : p.syndrome >> 5;
		if (kind === 1) request.rnr.push(row);
		else if (kind === 3 && (p.syndrome & 31) === 0) this.gap(to, p.psn, row);
		else if (kind === 3) request.refused = row;
		if (kind) row.trouble = true;
		if (kind === 0 && p.flags & LAST) this.answered(to, request, p, row);
	}
	/* The peer wants all from this PSN on again: of each request that has left, the NAK is a cause. */
	gap(end, psn, row) {
		for (const request of end.open)
			if ((request.lastPsn - psn + PSNS) % PSNS < HALF) (request.gaps ??= []).push(row);
	}
	requestIn(arrow, p, row, end) {
		const request = arrow.from?.request ?? arrow.request;
		row.request = request;
		if (!request) return;
		const isFirst = request.arrived === undefined;
		request.arrived ??= p.t;
		if (isFirst && p.operation === "SEND") this.pair(end, request, null);
	}
	/*
	 * A message and the receive that it took: the adapter may note either first. Of messages that may be
	 * dropped, it is the last one that has come: those before it found no receive.
	 */
	pair(end, request, receive) {
		const [mine, others] = request ? ["taking", "taken"] : ["taken", "taking"];
		if (receive && isUnreliable(end.taking.at(-1))) end.taking.splice(0, end.taking.length - 1);
		const other = end[others].shift();
		if (!other) end[mine].push(request ?? receive);
		else if (request) request.receive = other;
		else other.receive = receive;
	}
	/* One ACK may stand for several requests, or for a part of one. */
	answered(end, request, p, row) {
		if (!end.open.includes(request)) return;
		while (end.open[0] !== request) end.open.shift().answer ??= row;
		if (!request.isWhole || (p.operation === "ACK" && p.psn !== request.lastPsn)) return;
		end.open.shift().answer ??= row;
	}
	requestOf(end, p) {
		const known = end.byPsn.get(p.psn);
		if (known) return known;
		for (let i = end.open.length - 1; i >= 0; i--)
			if ((p.psn - end.open[i].firstPsn + PSNS) % PSNS < HALF) return end.open[i];
		return undefined;
	}

	/* ---- posts and completions ---- */

	followEvent(c, end, e) {
		const row = this.rowOf(c, e);
		if (e.event === EVENT.POST_SEND) this.postSend(c, end, e, row);
		else if (e.event === EVENT.POST_RECEIVE) this.postReceive(end, e, row);
		else if (e.event === EVENT.COMPLETION || e.event === EVENT.POLL) this.complete(end, e, row);
		else if (e.event === EVENT.SENTENCE) row.trouble = true;
	}
	postReceive(end, e, row) {
		if (e.status) {
			row.trouble = true;
			return;
		}
		row.receive = { post: e, row, wr: e.wr };
		end.receives.push(row.receive);
	}
	rowOf(c, e) {
		c.byRecord ??= new Map(c.rows.map(r => [r.record, r]));
		return c.byRecord.get(e);
	}

	postSend(c, end, e, row) {
		const name = this.capture.formats.work[e.opcode] ?? "?";
		const post = Object.assign(this.request(c, end, e.t, workOperation(name)), {
			post: e,
			postRow: row,
			wr: e.wr,
			bytes: e.bytes,
			isQuiet: name === "LOCAL_INV" || name === "BIND_MW",
			ahead: end.pending ?? 0,
			unpolled: (end.donePosts ?? 0) - (end.polledPosts ?? 0),
		});
		row.request = post;
		if (e.status) {
			row.trouble = true;
			return;
		}
		end.posts.push(post);
		end.pending = (end.pending ?? 0) + 1;
		end.requests.push(post);
		c.requests.push(post);
	}

	complete(end, e, row) {
		const isPoll = e.event === EVENT.POLL,
			what = isPoll ? "poll" : "completion";
		if (e.flags & IS_RECEIVE) this.completeReceive(end, e, row, what);
		else this.completeSend(end, e, row, what);
		if (e.status) row.trouble = true;
	}
	completeSend(end, e, row, what) {
		const from = what === "poll" ? "polledPosts" : "donePosts";
		end[from] ??= 0;
		for (let i = end[from]; i < end.posts.length; i++) {
			const request = end.posts[i];
			if (request.wr !== e.wr || !this.mayComplete(request, e, what)) continue;
			request[what] = row;
			request.status = e.status;
			row.request = request;
			if (what === "completion")
				end.pending = Math.max(0, (end.pending ?? 1) - (i + 1 - end[from]));
			end[from] = i + 1;
			return;
		}
	}
	/* Without SIGNALED a request has a completion only if it fails; what was polled was a completion before. */
	mayComplete(request, e, what) {
		if (what === "poll") return request.completion;
		return request.post.flags & SIGNALED || (e.status && !request.answer);
	}
	completeReceive(end, e, row, what) {
		const receive = end.receives.find(r => r.wr === e.wr && !r[what]);
		if (!receive) return;
		receive[what] = row;
		row.receive = receive;
		if (what === "poll") end.receives.splice(end.receives.indexOf(receive), 1);
		else if (e.status !== FLUSHED && e.opcode === RECEIVED) this.pair(end, null, receive);
	}

	finishEnd(c, end) {
		for (const request of end.requests) {
			request.story = null;
			for (const row of [...request.again, ...request.rnr]) row.trouble = true;
		}
		for (const arrow of c.arrows)
			if (isLost(arrow) || arrow.state === "corrupt" || arrow.again)
				(arrow.from ?? arrow.to).trouble = true;
		c.trouble = c.rows.reduce((n, r) => n + (r.trouble ? 1 : 0), 0);
		for (const row of c.rows)
			if (!row.request && row.arrow)
				row.request =
					row.arrow.request ?? row.arrow.from?.request ?? row.arrow.to?.request;
	}
}

/* An arrival that nobody got to see: its ICRC was wrong, or a fault dropped it. */
const isDropped = p => p.bad || Boolean(p.fault?.flags & FAULT.LOST);
/* What faults did to a packet where it left and where it arrived. */
const faultsOf = arrow => [arrow.from?.record.fault, arrow.to?.record.fault].filter(Boolean);
const isLost = arrow => arrow.state === "lost" || arrow.state === "injected";
const isUnreliable = request => request?.service === "UD" || request?.service === "UC";

function workOperation(name) {
	return name === "COMPARE_SWAP" || name === "FETCH_ADD"
		? "ATOMIC"
		: name === "ATOMIC_WRITE"
			? name
			: (name ?? "?").replace(/_WITH_.*/, "");
}

/* ---- where the time went ---- */

/* From post to completion; of a capture without those, from first packet to answer. NaN: no end yet. */
function latency(request) {
	const end = request.completion ?? request.answer ?? request.refused;
	return end ? end.record.t - request.begin : NaN;
}

/* Pieces of a request's time, in order: [{ what, from, to }]. */
function pieces(request) {
	const found = [],
		first = request.packets[0]?.record.t,
		post = request.post?.t;
	const add = (what, from, to) => {
		if (to > from) found.push({ what, from, to });
	};
	if (post !== undefined && first !== undefined) add("queue", post, first);
	let at = first ?? post;
	for (const row of [...request.again].sort((a, b) => a.record.t - b.record.t)) {
		const t = row.record.t,
			nak = request.rnr.findLast(n => n.record.t <= t && n.record.t >= at);
		if (nak && nak.record.t >= at) {
			add("wire", at, nak.record.t);
			add("rnr", nak.record.t, t);
		} else {
			add("loss", at, t);
		}
		at = Math.max(at, t);
	}
	const answer = (request.answer ?? request.refused)?.record.t,
		arrived = request.arrived,
		served = request.served;
	if (answer !== undefined) {
		if (!request.again.length && arrived >= at && served >= arrived && served <= answer) {
			add("wire", at, arrived);
			add("peer", arrived, served);
			at = served;
		}
		add("wire", at, answer);
		at = Math.max(at, answer);
	}
	const done = request.completion?.record.t,
		polled = request.poll?.record.t;
	if (done !== undefined && at !== undefined) {
		add("completing", at, done);
		at = Math.max(at, done);
	}
	if (polled !== undefined && at !== undefined) add("unpolled", at, polled);
	return found;
}

const PIECE_NAMES = {
	queue: "in the send queue",
	wire: "under way",
	peer: "with the peer",
	rnr: "for a receive of the peer",
	loss: "for what was lost",
	completing: "for its completion",
	unpolled: "in the completion queue",
};
