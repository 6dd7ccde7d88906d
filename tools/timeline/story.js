/* SPDX-License-Identifier: BSD-2-Clause */
/* A request's story in a sentence or two: how it ended, how long it took, and what made it wait. */

const STATUS_CAUSES = {
	REM_ACCESS_ERR:
		"the peer refused the access: the rkey, the address range or its access rights do not fit",
	REM_INV_REQ_ERR:
		"the peer refused the request: the message is longer than its receive, or it does not allow the operation",
	REM_OP_ERR: "the peer could not carry it out: its receive names memory that it may not write",
	RNR_RETRY_EXC_ERR: "the peer never posted a receive in time, and rnr_retry is used up",
	RETRY_EXC_ERR:
		"the peer did not answer, and retry_cnt is used up: it has ended, or nothing gets through to it",
	LOC_PROT_ERR: "its own memory was refused: the lkey or the address range of a piece does not fit",
	BAD_RESP_ERR: "the peer's answer makes no sense",
	LOC_LEN_ERR: "the message was longer than the receive",
	LOC_QP_OP_ERR: "the queue pair cannot do that",
	LOC_ACCESS_ERR: "its memory may not be written",
	MW_BIND_ERR: "the window could not be bound",
	WR_FLUSH_ERR:
		"it was flushed: the queue pair was in the error state, after an earlier failure or a disconnect",
};

const ERRNOS = { 5: "EIO", 12: "ENOMEM", 22: "EINVAL" };

const ON_PURPOSE = " on purpose (VERBATIM_FAULTS)";
const onPurpose = arrows => (arrows.some(arrow => arrow.state === "injected") ? ON_PURPOSE : "");
const many = (n, word) => n.toLocaleString("en") + " " + word + (n === 1 ? "" : "s");

class Story {
	constructor(capture) {
		this.capture = capture;
	}

	/* { text, bad, pieces } */
	of(request) {
		if (request.story) return request.story;
		const found = pieces(request),
			longest = found.reduce((a, b) => (b.to - b.from > a.to - a.from ? b : a), {
				from: 0,
				to: 0,
			});
		const parts = [this.beginning(request)],
			cause = this.refusal(request) || this.failure(request) || this.cause(request, longest);
		if (cause) parts.push(cause);
		const bad = Boolean(
			request.status || request.post?.status || request.refused || request.again.length || request.rnr.length
		);
		return (request.story = { text: parts.join(" "), bad, pieces: found, longest });
	}

	status(request) {
		return this.capture.formats.statuses[request.status];
	}
	name(request) {
		return (
			(request.post ? `wr_id ${wrName(request.wr)} (` : "The request (") +
			`${request.operation}, ${many(request.bytes, "byte")})`
		);
	}
	beginning(request) {
		const took = latency(request),
			name = this.name(request);
		if (request.status && !request.post?.status)
			return `${name} failed with ${this.status(request) ?? request.status} after ${duration(took)}.`;
		if (request.post?.status)
			return `${name} was refused at once (${ERRNOS[request.post.status] ?? "errno " + request.post.status}).`;
		if (!Number.isNaN(took))
			return request.completion || !request.post
				? `${name} took ${duration(took)}.`
				: `${name} was answered after ${duration(took)}.`;
		return request.packets.length
			? `${name} has no answer in this capture.`
			: `${name} has no packet in this capture.`;
	}

	because(cause, request) {
		const said = this.sentence(request);
		return `Why: ${cause}.` + (said ? ` The library says: “${said}”` : "");
	}
	/* Of a post that did not enter the queue. */
	refusal(request) {
		if (!request.post?.status) return "";
		const { ahead, unpolled } = request;
		return this.because(
			ERRNOS[request.post.status] === "ENOMEM" && ahead + unpolled
				? `the send queue had no room: ${many(ahead, "request")} in it had no completion yet, ` +
						`and ${many(unpolled, "place")} waited for completions to be polled`
				: "the work request does not fit the queue pair, or its state",
			request
		);
	}
	failure(request) {
		const status = this.status(request),
			rnr = request.rnr.length;
		if (!request.status) return "";
		if (request.status === FLUSHED) return this.flush(request);
		return this.because(
			status === "RNR_RETRY_EXC_ERR" && rnr
				? `the peer said ${many(rnr, "time")} that it has no receive, and rnr_retry is used up`
				: (STATUS_CAUSES[status] ?? "nothing is known of it but this status"),
			request
		);
	}
	/* What brought the queue pair into the error state: the last failure or disconnect before. */
	flush(request) {
		const { connection, end, completion } = request;
		const culprit = connection.rows.findLast(
			({ record: r, side }) =>
				r.kind === "event" &&
				r.t <= completion.record.t &&
				connection.ends[side] === end &&
				((r.event === EVENT.COMPLETION && r.status && r.status !== FLUSHED) ||
					(r.event === EVENT.CM && r.text.includes("DISCONNECTED")))
		)?.record;
		if (!culprit) return this.because(STATUS_CAUSES.WR_FLUSH_ERR, request);
		if (culprit.event === EVENT.CM)
			return "Why: it was flushed: the connection had ended (RDMA_CM_EVENT_DISCONNECTED).";
		const what = culprit.flags & IS_RECEIVE ? "receive" : "send",
			failed = this.capture.formats.statuses[culprit.status] ?? culprit.status;
		return `Why: it was flushed, since ${what} wr_id ${wrName(culprit.wr)} had failed with ${failed}.`;
	}
	/* What the library said of it, near its end: what names it, or else no other. */
	sentence(request) {
		const at = (request.completion ?? request.refused ?? request.postRow)?.record.t,
			own = "wr_id 0x" + (request.wr ?? 0n).toString(16);
		const near = request.connection.rows
			.filter(
				({ record: r, side }) =>
					r.event === EVENT.SENTENCE &&
					Math.abs(r.t - at) < 1e6 &&
					request.connection.ends[side] === request.end
			)
			.map(row => row.record.text);
		return (
			near.find(text => new RegExp(own + "\\b").test(text)) ??
			near.find(text => !text.includes("wr_id"))
		);
	}

	cause(request, longest) {
		const took = longest.to - longest.from,
			share = duration(took),
			late = this.lateReceive(request);
		if (this.isWithoutCompletion(request)) return this.noCompletion(request);
		if (request.rnr.length || late) return this.waited(request, late);
		if (request.again.length) return this.loss(request);
		const held = this.held(request);
		if (held) return held;
		if (request.gaps) return "The peer missed a packet of it, or an earlier one (NAK: PSN sequence error).";
		if (longest.what === "unpolled" && took > 2e3)
			return `Its completion lay in the completion queue for ${share} until the program polled it.`;
		if (longest.what === "queue" && took > 2e3) return this.queued(request, share);
		if (longest.what === "peer" && took > 2e3)
			return `The peer had it for ${share} before it answered: it is slow to serve it.`;
		if (longest.what === "completing" && took > 2e3)
			return `It was answered, and its completion came ${share} later: nobody looked, or others came first.`;
		if (longest.what !== "wire" || took <= 2e3) return "";
		return request.packets[0].record.way === "local"
			? `Most of it, ${share}, it lay in shared memory until the peer looked: nobody polled there.`
			: `Most of it, ${share}, it was under way or waited for the peer to look.`;
	}
	isWithoutCompletion(request) {
		return request.post && request.answer && !request.completion;
	}
	noCompletion(request) {
		const full = request.connection.rows.find(
			({ record: r, side }) =>
				r.event === EVENT.SENTENCE &&
				r.t >= request.begin &&
				/completion queue .* is full/.test(r.text) &&
				request.connection.ends[side] === request.end
		);
		if (full) return `No completion came: the library says “${full.record.text}”`;
		return request.post.flags & SIGNALED ? "" : "It asked for no completion of its own.";
	}
	waited(request, late) {
		const rnr = request.rnr.length,
			said = rnr ? `the peer said RNR ${many(rnr, "time")}` : "",
			posted = late ? `the receive that it took was posted ${duration(late)} after it had left` : "";
		return `It waited for a receive: ${[said, posted].filter(Boolean).join(", and ")}.`;
	}
	queued(request, share) {
		if (request.post.flags & FENCE && this.hasOpenReads(request))
			return `It waited ${share} in the send queue: it has a fence, so earlier READs and atomics had to finish.`;
		const behind = request.ahead ? ` behind ${many(request.ahead, "request")}` : "";
		return `It waited ${share} in the send queue${behind}.`;
	}

	/* Was an earlier READ or atomic of its queue pair under way when it was posted? */
	hasOpenReads({ end, begin, number }) {
		return end.requests
			.slice(0, number)
			.some(
				r =>
					(r.operation === "READ" || r.operation === "ATOMIC") &&
					!((r.answer ?? r.refused ?? r.completion)?.record.t <= begin)
			);
	}

	/* Which packet was lost, and which way. */
	loss(request) {
		const sent = [...request.packets, ...request.again].map(row => row.arrow),
			lost = sent.filter(isLost).length,
			bad = sent.filter(arrow => arrow.state === "corrupt").length,
			answers = this.answersLost(request);
		const waited = pieces(request)
			.filter(p => p.what === "loss")
			.reduce((sum, p) => sum + p.to - p.from, 0);
		const again = `sent again ${many(request.again.length, "time")}, which cost ${duration(waited)}`;
		if (bad)
			return (
				`${many(bad, "packet")} ${this.changed(sent)}arrived with a wrong ICRC ` +
				`and was dropped; it was ${again}.`
			);
		if (lost)
			return `${many(lost, "packet")} of it ${lost === 1 ? "was" : "were"} lost${onPurpose(sent)}; it was ${again}.`;
		const held = this.held(request);
		if (held) return `${held} It was ${again}.`;
		if (request.gaps)
			return `The peer missed an earlier packet (NAK: PSN sequence error); it was ${again}.`;
		if (answers.length)
			return `It arrived, but its ACK was lost${onPurpose(answers)}; it was ${again}.`;
		return `No answer came in time; it was ${again}.`;
	}
	changed(arrows) {
		const isOne = arrows.flatMap(faultsOf).some(({ flags }) => flags & FAULT.CHANGED);
		return isOne ? `was changed${ON_PURPOSE}, ` : "";
	}
	answers(request) {
		const { connection, end } = request,
			side = connection.side(end);
		return connection.arrows.filter(a => a.fromSide !== side && a.request === request);
	}
	answersLost(request) {
		return this.answers(request).filter(isLost);
	}

	/* What a fault held back of it, or of its answers. */
	held(request) {
		const longest = arrows =>
			arrows.flatMap(faultsOf).reduce((most, fault) => Math.max(most, fault.held), 0);
		if (!this.capture.hasFaults) return "";
		const sent = [...request.packets, ...request.again, ...request.copies],
			there = longest(sent.map(row => row.arrow)),
			back = longest(this.answers(request));
		if (!there && !back) return "";
		return there >= back
			? `A packet of it was held back for ${duration(there)}${ON_PURPOSE}.`
			: `Its answer was held back for ${duration(back)}${ON_PURPOSE}.`;
	}

	/* How long after the message had left its receive was posted; 0: it was there. */
	lateReceive(request) {
		const left = request.packets[0]?.record.t,
			posted = request.receive?.post.t;
		return posted > left ? posted - left : 0;
	}
}
