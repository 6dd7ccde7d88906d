/* SPDX-License-Identifier: BSD-2-Clause */
/* The page: the list of connections, the panel, the search, the keys. */

const KEYS = [
	["↑ ↓  or  k j", "event before, event after"],
	["← →", "to the other end of an arrow; to the request's first event"],
	["Page Up, Page Down, Home, End", "move"],
	["+ −", "zoom (also Ctrl and the wheel)"],
	["0", "all of it"],
	["t", "rows in order, or to the scale of time"],
	["n N", "next trouble, trouble before"],
	["[ ]", "connection before, after"],
	["s", "save what is shown as a picture (SVG)"],
	["/", "search; Enter and Shift+Enter: next hit, hit before"],
	["Esc", "back to the overview"],
	["?", "this"],
];

const $ = id => document.getElementById(id);

function make(name, properties, ...children) {
	const e = Object.assign(document.createElement(name), properties);
	e.append(...children.filter(c => c !== null && c !== undefined));
	return e;
}

class Page {
	constructor() {
		const formats = new Formats(JSON.parse($("formats").textContent));
		this.capture = new Capture(bytesOfBase64($("capture").textContent), formats);
		this.model = new Model(this.capture);
		this.story = new Story(this.capture);
		this.ladder = new Ladder($("ladder"), $("overview"), $("lanes"), this.capture, row =>
			this.select(row)
		);
		this.hits = [];
		this.listen();
		this.describe();
		if (this.model.connections.length) this.open(this.model.connections[0]);
		else
			$("stage").replaceChildren(
				make("p", {
					className: "empty",
					textContent: "The capture holds no packet and no event.",
				})
			);
		document.body.dataset.ready = "yes";
	}

	describe() {
		const c = this.capture,
			names = c.processes.map(p => p.name);
		document.title = "timeline: " + (names.join(", ") || "nothing");
		const text = [
			`${c.packets.toLocaleString("en")} packets`,
			c.records.length > c.packets
				? `${(c.records.length - c.packets).toLocaleString("en")} posts, completions and events`
				: "",
			`${duration(c.span)}`,
			names.join(", "),
			c.dropped ? `${c.dropped.toLocaleString("en")} not captured: no room` : "",
		];
		$("about").textContent = text.filter(Boolean).join(" · ");
		$("connections").replaceChildren(
			...this.model.connections.map(connection => this.connectionButton(connection))
		);
	}
	connectionButton(c) {
		const [a, b] = c.ends,
			requests = c.requests.length;
		const button = make(
			"button",
			{ onclick: () => this.open(c) },
			make("b", { textContent: a.name + " ↔ " + b.name }),
			make("small", {
				textContent: [
					c.service,
					c.isWire ? "over the wire" : c.packets ? "shared memory" : "",
					[a.qpn, b.qpn]
						.filter(Boolean)
						.map(n => "0x" + n.toString(16))
						.join(" – "),
				]
					.filter(Boolean)
					.join(" · "),
			}),
			make("small", {
				textContent: `${requests ? many(requests, "request") + ", " : ""}${many(c.packets, "packet")}`,
			}),
			c.trouble
				? make("small", {
						className: "bad",
						textContent: "⚠ " + many(c.trouble, "event") + " of trouble",
					})
				: null
		);
		button.dataset.connection = c.index;
		return button;
	}

	open(connection) {
		this.connection = connection;
		for (const b of $("connections").children)
			b.setAttribute("aria-current", b.dataset.connection === String(connection.index));
		$("ladder").setAttribute(
			"aria-label",
			`Events between ${connection.ends[0].name} and ${connection.ends[1].name}`
		);
		$("ladder").dataset.rows = connection.rows.length;
		$("ladder").dataset.arrows = connection.arrows.length;
		this.ladder.show(connection);
		this.showMode();
		this.find($("query").value);
		this.overview();
	}

	/* ---- choosing ---- */

	select(row) {
		this.ladder.select(row);
		if (!row) {
			this.overview();
			return;
		}
		const r = row.record;
		$("status").textContent =
			`${clock(r.t - this.ladder.start)} · ${this.connection.ends[row.side].name}: ` +
			rowLabel(this.capture, row);
		this.details(row);
	}
	step(by) {
		const rows = this.connection.rows,
			at = this.ladder.selected?.index;
		const next = at === undefined ? this.ladder.search(this.ladder.from) : at + by;
		this.select(rows[Math.max(0, Math.min(rows.length - 1, next))]);
	}
	trouble(by) {
		const rows = this.connection.rows;
		let at = (this.ladder.selected?.index ?? (by > 0 ? -1 : rows.length)) + by;
		while (at >= 0 && at < rows.length && !rows[at].trouble) at += by;
		if (rows[at]) this.select(rows[at]);
		else $("status").textContent = by > 0 ? "No more trouble below." : "No trouble above.";
	}
	across() {
		const { arrow } = this.ladder.selected ?? {},
			row = this.ladder.selected;
		const other = arrow && (arrow.from === row ? arrow.to : arrow.from);
		if (other) this.select(other);
	}
	toRequest() {
		const request = this.ladder.selected?.request,
			row = request?.postRow ?? request?.packets[0];
		if (row) this.select(row);
	}

	/* ---- the panel ---- */

	details(row) {
		const r = row.record,
			request = row.request,
			parts = [make("h2", { textContent: rowLabel(this.capture, row) })];
		if (request) parts.push(...this.requestParts(request));
		const groups = r.kind === "packet" ? this.capture.fields(r) : this.eventFields(r);
		parts.push(
			make("h3", { textContent: "All fields" }),
			...groups.map(([name, fields], i) =>
				make(
					"details",
					{
						open:
							i === 0 ||
							groups.length < 3 ||
							name === "BTH" ||
							name === "AETH" ||
							name === "RETH",
					},
					make("summary", { textContent: name }),
					fieldTable(fields)
				)
			)
		);
		$("panel").replaceChildren(...parts);
		$("panel").scrollTop = 0;
	}
	eventFields(e) {
		const f = this.capture.formats,
			isPost = e.event === EVENT.POST_SEND,
			isDone = e.event === EVENT.COMPLETION || e.event === EVENT.POLL;
		const rows = [
			["what", eventWord(e.event)],
			["time", this.capture.date(e.t)],
			["process", e.process.name],
		];
		if (e.qpn) rows.push(["queue pair", "0x" + e.qpn.toString(16).padStart(6, "0")]);
		if (isPost || isDone || e.event === EVENT.POST_RECEIVE)
			rows.push(["wr_id", `${e.wr} (0x${e.wr.toString(16)})`], ["bytes", e.bytes]);
		if (isPost)
			rows.push(
				["opcode", f.work[e.opcode] ?? e.opcode],
				["pieces", e.flags >>> PIECES],
				["send_flags", flagNames(e.flags)],
				["remote address", "0x" + e.address.toString(16)],
				["rkey", "0x" + e.rkey.toString(16)]
			);
		if (isPost && e.status) rows.push(["refused with errno", e.status]);
		if (isDone)
			rows.push(
				["status", `${e.status} (${f.statuses[e.status] ?? "?"})`],
				["of", e.flags & IS_RECEIVE ? "a receive" : "a send"]
			);
		if (e.queue) rows.push([isDone ? "completion queue" : "shared receive queue", e.queue]);
		if (e.text) rows.push(["text", e.text]);
		return [["Event", rows]];
	}

	requestParts(request) {
		const story = this.story.of(request),
			first = request.begin,
			last = story.pieces.at(-1)?.to ?? first;
		const parts = [
			make("p", {
				className: "story" + (story.bad ? " bad" : ""),
				textContent: story.text,
			}),
		];
		if (story.pieces.length && last > first) parts.push(this.bar(story.pieces, last - first));
		parts.push(make("h3", { textContent: "Its way" }), this.steps(request));
		return parts;
	}
	bar(found, whole) {
		const bar = make("div", {
			className: "bar",
			role: "img",
			ariaLabel: found
				.map(p => `${duration(p.to - p.from)} ${PIECE_NAMES[p.what]}`)
				.join(", "),
		});
		const sums = new Map();
		for (const p of found) {
			const i = make("i", { title: `${duration(p.to - p.from)} ${PIECE_NAMES[p.what]}` });
			i.style.cssText = `flex:${(p.to - p.from) / whole};background:var(--${p.what})`;
			bar.append(i);
			sums.set(p.what, (sums.get(p.what) ?? 0) + p.to - p.from);
		}
		const table = make("table", {}, ...[...sums].map(([what, ns]) => waitRow(what, ns)));
		return make("div", { className: "waits" }, bar, table);
	}
	steps(request) {
		const rows = new Set(
			[
				request.postRow,
				...request.packets.slice(0, 3),
				...request.rnr.slice(0, 8),
				...request.again.slice(0, 8),
				request.refused,
				request.answer,
				request.completion,
				request.poll,
			].filter(Boolean)
		);
		return make(
			"div",
			{ className: "steps" },
			...[...rows]
				.sort((a, b) => a.index - b.index)
				.map(row =>
					this.jump(
						rowLabel(this.capture, row),
						"+" + duration(row.record.t - request.begin),
						row
					)
				)
		);
	}
	jump(text, value, row) {
		return make(
			"button",
			{ onclick: () => this.select(row) },
			make("span", { textContent: text }),
			make("span", { textContent: value })
		);
	}

	/* Of the connection: latencies, waits, what was slow, what went wrong. */
	overview() {
		const c = this.connection,
			done = c.requests.filter(r => !Number.isNaN(latency(r))),
			parts = [make("h2", { textContent: `${c.ends[0].name} ↔ ${c.ends[1].name}` })];
		$("status").textContent =
			`${many(c.rows.length, "event")}, ${many(c.arrows.length, "arrow")}. ` +
			"↑ ↓ choose an event, ? shows all keys.";
		const failed = c.requests.filter(r => r.status);
		if (failed.length)
			parts.push(
				make("p", {
					className: "story bad",
					textContent: this.story.of(
						failed.find(r => r.status !== 5) ?? failed[0]
					).text,
				})
			);
		if (done.length) {
			const hasCompletions = done.some(r => r.completion);
			parts.push(
				make("h3", {
					textContent: hasCompletions
						? "From post to completion"
						: "From first packet to answer",
				}),
				this.histogram(done),
				percentiles(done)
			);
			parts.push(
				...this.waits(c),
				make("h3", { textContent: "Slowest" }),
				this.slowest(done)
			);
		}
		const hasEvents = this.capture.records.length > this.capture.packets;
		parts.push(make("h3", { textContent: "Signs" }), legend(hasEvents));
		$("panel").replaceChildren(...parts);
	}
	waits(c) {
		const sums = new Map();
		for (const request of c.requests)
			for (const p of pieces(request))
				sums.set(p.what, (sums.get(p.what) ?? 0) + p.to - p.from);
		if (!sums.size) return [];
		return [
			make("h3", { textContent: "Where requests waited, all together" }),
			make(
				"table",
				{ className: "waits" },
				...[...sums]
					.sort((a, b) => b[1] - a[1])
					.map(([what, ns]) => waitRow(what, ns))
			),
		];
	}
	slowest(done) {
		const list = [...done].sort((a, b) => latency(b) - latency(a)).slice(0, 8);
		return make(
			"div",
			{ className: "list" },
			...list.map(r =>
				this.jump(
					this.story.name(r).replace(/^The request \((.*)\)$/, "$1"),
					duration(latency(r)),
					r.postRow ?? r.packets[0]
				)
			)
		);
	}

	/* Powers of two, or halves of them where all are close. */
	histogram(done) {
		const values = done.map(latency),
			steps = 4,
			bin = v => Math.floor(Math.log2(Math.max(1, v)) * steps);
		const low = values.reduce((a, v) => Math.min(a, bin(v)), Infinity),
			high = Math.max(
				low + 7,
				values.reduce((a, v) => Math.max(a, bin(v)), 0)
			);
		const slowest = new Map(),
			counts = new Array(high - low + 1).fill(0);
		done.forEach((r, i) => {
			const b = bin(values[i]) - low;
			counts[b]++;
			if (!slowest.has(b) || latency(slowest.get(b)) < values[i]) slowest.set(b, r);
		});
		const w = 340,
			h = 150,
			most = Math.max(...counts),
			chart = svg("svg", {
				class: "histogram",
				viewBox: `0 0 ${w} ${h}`,
				role: "group",
				"aria-label": "Histogram of latencies",
			});
		const x = b => (b * w) / counts.length,
			ground = h - 18;
		for (let b = 0; b < counts.length; b++) {
			if (!counts[b]) continue;
			const height = Math.max(
					2,
					(Math.log1p(counts[b]) / Math.log1p(most)) * (ground - 16)
				),
				from = 2 ** ((b + low) / steps),
				to = 2 ** ((b + low + 1) / steps);
			const rect = svg("rect", {
				x: x(b) + 0.5,
				y: ground - height,
				width: Math.max(1, w / counts.length - 1),
				height,
				tabindex: 0,
				role: "button",
				"data-count": counts[b],
				"aria-label": `${duration(from)} to ${duration(to)}: ${many(counts[b], "request")}`,
			});
			rect.append(
				svg(
					"title",
					{},
					`${duration(from)} to ${duration(to)}: ${counts[b].toLocaleString("en")}`
				)
			);
			const choose = () => {
				const r = slowest.get(b);
				this.select(r.postRow ?? r.packets[0]);
			};
			rect.addEventListener("click", choose);
			rect.addEventListener("keydown", e => {
				if (e.key === "Enter" || e.key === " ") choose();
			});
			chart.append(rect);
		}
		chart.append(svg("line", { class: "axis", x1: 0, x2: w, y1: ground, y2: ground }));
		const every = Math.max(1, Math.ceil(counts.length / 5));
		for (let b = 0; b < counts.length; b += every)
			chart.append(svg("text", { x: x(b), y: h - 4 }, duration(2 ** ((b + low) / steps))));
		chart.append(
			svg(
				"text",
				{ x: w, y: 10, "text-anchor": "end" },
				`${done.length.toLocaleString("en")} requests; heights are logarithmic`
			)
		);
		return chart;
	}

	/* ---- search ---- */

	find(text) {
		const query = text.trim().toLowerCase();
		this.hits = query ? this.connection.rows.filter(row => this.matches(row, query)) : [];
		this.ladder.hits = new Set(this.hits);
		$("hits").textContent = query ? many(this.hits.length, "hit") : "";
		this.ladder.draw();
	}
	/* A number is a wr_id, and a PSN if nothing has that wr_id; anything else is looked for in labels. */
	matches(row, query) {
		const r = row.record,
			number = /^(0x[0-9a-f]+|\d+)$/.test(query) ? BigInt(query) : null;
		if (number === null)
			return rowLabel(this.capture, row)
				.toLowerCase()
				.includes(query.replace(/^psn /, "psn "));
		if (r.kind === "event") return r.event <= EVENT.POLL && r.wr === number;
		return row.request?.wr === number || (!row.request?.post && BigInt(r.psn ?? -1) === number);
	}
	nextHit(by) {
		if (!this.hits.length) return;
		const at = this.ladder.selected?.index ?? -1;
		const next =
			by > 0
				? (this.hits.find(r => r.index > at) ?? this.hits[0])
				: (this.hits.findLast(r => r.index < at) ?? this.hits.at(-1));
		this.select(next);
		$("hits").textContent = `${this.hits.indexOf(next) + 1} of ${this.hits.length}`;
	}

	/* ---- keys and buttons ---- */

	showMode() {
		$("mode").textContent = this.ladder.mode === "order" ? "In order" : "To scale";
	}
	toggleMode() {
		this.ladder.setMode(this.ladder.mode === "order" ? "time" : "order");
		this.showMode();
	}
	another(by) {
		const all = this.model.connections;
		this.open(all[(this.connection.index + by + all.length) % all.length]);
	}
	theme() {
		const root = document.documentElement,
			isDark =
				(root.dataset.theme ??
					(matchMedia("(prefers-color-scheme: dark)").matches
						? "dark"
						: "light")) === "dark";
		root.dataset.theme = isDark ? "light" : "dark";
		this.ladder.draw();
	}
	showKeys() {
		const dialog = $("keys");
		dialog.replaceChildren(
			make("h2", { textContent: "Keys" }),
			make(
				"table",
				{},
				...KEYS.map(([key, text]) =>
					make(
						"tr",
						{},
						make("td", {}, make("kbd", { textContent: key })),
						make("td", { textContent: text })
					)
				)
			),
			make("button", { textContent: "Close", onclick: () => dialog.close() })
		);
		dialog.showModal();
	}

	listen() {
		const actions = {
			mode: () => this.toggleMode(),
			out: () => this.ladder.zoom(0.5),
			in: () => this.ladder.zoom(2),
			fit: () => this.ladder.all(),
			"previous-trouble": () => this.trouble(-1),
			"next-trouble": () => this.trouble(1),
			theme: () => this.theme(),
			help: () => this.showKeys(),
		};
		for (const [id, action] of Object.entries(actions)) $(id).addEventListener("click", action);
		$("search").addEventListener("submit", e => e.preventDefault());
		$("query").addEventListener("input", () => this.find($("query").value));
		$("query").addEventListener("keydown", e => {
			if (e.key === "Enter") this.nextHit(e.shiftKey ? -1 : 1);
			else if (e.key === "Escape") {
				$("query").value = "";
				this.find("");
				$("ladder").focus();
			}
		});
		document.addEventListener("keydown", e => this.key(e));
	}
	savePicture() {
		const picture = new Blob([pictureOf(this.ladder)], { type: "image/svg+xml" }),
			link = make("a", { download: "timeline.svg", href: URL.createObjectURL(picture) });
		link.click();
		setTimeout(() => URL.revokeObjectURL(link.href), 1000);
	}
	key(e) {
		if (
			e.ctrlKey ||
			e.metaKey ||
			e.altKey ||
			e.target.closest("input, dialog") ||
			!this.connection
		)
			return;
		const keys = {
			ArrowDown: () => this.step(1),
			j: () => this.step(1),
			ArrowUp: () => this.step(-1),
			k: () => this.step(-1),
			ArrowRight: () => this.across(),
			ArrowLeft: () => this.toRequest(),
			PageDown: () => this.ladder.scroll(0.9),
			PageUp: () => this.ladder.scroll(-0.9),
			Home: () => this.ladder.scroll(-1e12),
			End: () => this.ladder.scroll(1e12),
			"+": () => this.ladder.zoom(1.6),
			"=": () => this.ladder.zoom(1.6),
			"-": () => this.ladder.zoom(1 / 1.6),
			0: () => this.ladder.all(),
			t: () => this.toggleMode(),
			n: () => this.trouble(1),
			N: () => this.trouble(-1),
			"[": () => this.another(-1),
			"]": () => this.another(1),
			s: () => this.savePicture(),
			"/": () => $("query").focus(),
			"?": () => this.showKeys(),
			Escape: () => this.select(null),
		};
		const action = keys[e.key];
		if (!action) return;
		e.preventDefault();
		action();
	}
}

function fieldTable(fields) {
	return make(
		"table",
		{},
		...fields.map(([name, value]) =>
			make(
				"tr",
				{},
				make("th", { scope: "row", textContent: String(name).replaceAll("_", " ") }),
				make("td", { textContent: String(value) })
			)
		)
	);
}
function waitRow(what, ns) {
	const key = make("i", { className: "key" });
	key.style.background = `var(--${what})`;
	return make(
		"tr",
		{},
		make("th", {}, key, PIECE_NAMES[what]),
		make("td", { className: "number", textContent: duration(ns) })
	);
}
function percentiles(done) {
	const values = done.map(latency).sort((a, b) => a - b),
		at = q => values[Math.min(values.length - 1, Math.floor(q * values.length))];
	const rows = [
		["smallest", values[0]],
		["median", at(0.5)],
		["99 %", at(0.99)],
		["largest", values.at(-1)],
	];
	return make(
		"table",
		{ className: "percentiles" },
		...rows.map(([name, ns]) =>
			make(
				"tr",
				{},
				make("th", { textContent: name }),
				make("td", { className: "number", textContent: duration(ns) })
			)
		)
	);
}
function flagNames(flags) {
	const names = ["FENCE", "SIGNALED", "SOLICITED", "INLINE", "IP_CSUM"].filter(
		(_, bit) => (flags >> bit) & 1
	);
	return names.join(", ") || "none";
}
function legend(hasEvents) {
	const rows = [
		["━━▶", "--request", "a request's packet"],
		["╍╍▶", "--answer", "an ACK or an answer"],
		["┅┅▶", "--cm", "connection management"],
		["━━✕", "--trouble", "lost, sent again, refused"],
		[
			"━━▷",
			"--request",
			"into the peer's memory by this process, or a peer that was not captured",
		],
	];
	if (hasEvents)
		rows.push(
			["▶", "--post", "a post"],
			["■", "--answer", "a completion"],
			["□", "--event", "the program polls it"],
			["◆", "--event", "an event"]
		);
	return make(
		"table",
		{ className: "signs" },
		...rows.map(([sign, colour, text]) => {
			const td = make("td", { textContent: sign, className: "sign" });
			td.style.color = `var(${colour})`;
			return make("tr", {}, td, make("td", { textContent: text }));
		})
	);
}

const page = new Page();
