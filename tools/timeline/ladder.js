/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Draws one connection: of its rows only those that are in view. The view is a stretch of positions; a row's
 * position is its number, more where time passed before it, or its time.
 */

const ROW = 26,
	LABELLED = 170,
	DRAWN = 700,
	SCAN = 400;
const SVG = "http://www.w3.org/2000/svg";

function svg(name, attributes, text) {
	const e = document.createElementNS(SVG, name);
	for (const [key, value] of Object.entries(attributes ?? {})) e.setAttribute(key, value);
	if (text !== undefined) e.textContent = text;
	return e;
}

class Ladder {
	constructor(element, overview, lanes, capture, onSelect) {
		Object.assign(this, {
			element,
			overview,
			lanes,
			capture,
			onSelect,
			pen: document.createElement("canvas").getContext("2d"),
			family: getComputedStyle(element).fontFamily,
			mode: "order",
			hits: new Set(),
			selected: null,
			from: 0,
			to: 1,
		});
		element.addEventListener("wheel", e => this.wheel(e), { passive: false });
		element.addEventListener("click", e => this.click(e));
		element.addEventListener("pointerdown", e => this.grab(e));
		overview.addEventListener("pointerdown", e => this.jump(e));
		overview.addEventListener("pointermove", e => e.buttons && this.jump(e));
		new ResizeObserver(() => this.resized()).observe(element);
	}

	/* ---- positions ---- */

	show(connection) {
		this.connection = connection;
		this.selected = null;
		this.place();
		this.from = 0;
		this.to = Math.min(this.length, this.rowsThatFit());
		if (this.mode === "time") this.to = this.length;
		this.draw();
	}
	place() {
		const rows = this.connection.rows,
			at = new Float64Array(rows.length);
		this.isTime = this.mode === "time";
		const start = rows[0]?.record.t ?? 0,
			usual = this.usualGap(rows);
		let position = 0.5;
		for (let i = 0; i < rows.length; i++) {
			const gap = i ? rows[i].record.t - rows[i - 1].record.t : 0;
			const extra =
				gap > 20 * usual ? Math.min(3, 0.7 + Math.log10(gap / (20 * usual))) : 0;
			rows[i].gap = extra ? gap : 0;
			if (this.isTime) at[i] = rows[i].record.t - start;
			else at[i] = position += (i ? 1 : 0) + extra;
		}
		this.at = at;
		this.start = start;
		this.length = this.isTime ? Math.max(1, (at.at(-1) ?? 0) * 1.02) : (at.at(-1) ?? 0) + 1;
		this.paintOverview();
	}
	usualGap(rows) {
		const gaps = [];
		for (let i = 1; i < rows.length; i += Math.max(1, rows.length >> 10))
			gaps.push(rows[i].record.t - rows[i - 1].record.t);
		return Math.max(1000, gaps.sort((a, b) => a - b)[gaps.length >> 1] ?? 1000);
	}
	rowsThatFit() {
		return Math.max(8, this.element.clientHeight / ROW);
	}
	y(position) {
		return ((position - this.from) / (this.to - this.from)) * this.element.clientHeight;
	}

	/* The first row at or behind a position. */
	search(position) {
		let low = 0,
			high = this.at.length;
		while (low < high) {
			const middle = (low + high) >> 1;
			if (this.at[middle] < position) low = middle + 1;
			else high = middle;
		}
		return low;
	}

	setMode(mode) {
		const middle =
			this.selected ??
			this.connection.rows[
				Math.min(this.search((this.from + this.to) / 2), this.at.length - 1)
			];
		const share = (this.to - this.from) / this.length;
		this.mode = mode;
		this.place();
		const span =
			mode === "order"
				? Math.min(this.length, this.rowsThatFit())
				: Math.max(this.length * Math.min(1, share), 1);
		const at = this.at[middle?.index ?? 0] ?? 0;
		this.view(at - span / 2, at + span / 2);
	}

	view(from, to) {
		const least = this.isTime ? 20 : 4,
			span = Math.min(Math.max(to - from, least), Math.max(this.length, least));
		const middle = (from + to) / 2;
		this.from = Math.max(0, Math.min(middle - span / 2, this.length - span));
		this.to = this.from + span;
		this.draw();
	}
	zoom(factor, anchor = 0.5) {
		const at = this.from + (this.to - this.from) * anchor,
			span = (this.to - this.from) / factor;
		this.view(at - span * anchor, at + span * (1 - anchor));
	}
	scroll(share) {
		const by = (this.to - this.from) * share;
		this.view(this.from + by, this.to + by);
	}
	all() {
		this.view(0, this.length);
	}

	reveal(row) {
		const at = this.at[row.index],
			span = this.to - this.from;
		if (at < this.from + span * 0.06 || at > this.to - span * 0.06)
			this.view(at - span / 2, at + span / 2);
		else this.draw();
	}
	select(row) {
		this.selected = row;
		if (row) this.reveal(row);
		else this.draw();
	}

	/* ---- what people do ---- */

	wheel(e) {
		e.preventDefault();
		const box = this.element.getBoundingClientRect();
		if (e.ctrlKey || e.metaKey || e.altKey)
			this.zoom(Math.exp(-e.deltaY / 240), (e.clientY - box.top) / box.height);
		else this.scroll((e.deltaY * (e.deltaMode ? ROW : 1)) / box.height);
	}
	click(e) {
		const id = e.target.closest("[data-row]")?.dataset.row;
		if (id !== undefined && !this.moved) this.onSelect(this.connection.rows[id]);
	}
	grab(e) {
		const y = e.clientY,
			{ from, to } = this;
		this.moved = false;
		const move = m => {
			if (Math.abs(m.clientY - y) > 4) this.moved = true;
			if (this.moved)
				this.view(
					from - ((m.clientY - y) / this.element.clientHeight) * (to - from),
					to - ((m.clientY - y) / this.element.clientHeight) * (to - from)
				);
		};
		const up = () => {
			removeEventListener("pointermove", move);
			removeEventListener("pointerup", up);
		};
		addEventListener("pointermove", move);
		addEventListener("pointerup", up);
	}
	jump(e) {
		const at = (e.offsetY / this.overview.clientHeight) * this.length,
			half = (this.to - this.from) / 2;
		this.view(at - half, at + half);
	}
	resized() {
		if (!this.connection) return;
		this.paintOverview();
		if (!this.isTime && this.to - this.from < LABELLED)
			this.view(this.from, this.from + this.rowsThatFit());
		else this.draw();
	}

	/* ---- drawing ---- */

	draw() {
		if (this.pending) return;
		this.pending = true;
		requestAnimationFrame(() => {
			this.pending = false;
			this.paint();
		});
	}

	geometry() {
		const w = this.element.clientWidth,
			gutter = 92,
			side = Math.max(130, Math.min(240, (w - gutter) * 0.28));
		return { w, h: this.element.clientHeight, gutter, left: gutter + side, right: w - side };
	}

	paint() {
		const g = this.geometry(),
			first = this.search(this.from),
			end = this.search(this.to);
		const parts = [
			svg("line", { class: "lane", x1: g.left, x2: g.left, y1: 0, y2: g.h }),
			svg("line", { class: "lane", x1: g.right, x2: g.right, y1: 0, y2: g.h }),
		];
		this.g = g;
		this.paintLanes(g);
		if (end - first > DRAWN) this.paintDensity(parts, g, first, end);
		else this.paintRows(parts, g, first, end);
		this.element.replaceChildren(...parts);
		this.element.setAttribute(
			"aria-activedescendant",
			this.selected ? "row-" + this.selected.index : ""
		);
		this.element.dataset.drawn = end - first;
		this.paintWindow();
	}

	paintLanes(g) {
		this.lanes.replaceChildren(
			...this.connection.ends.map((end, side) => {
				const div = document.createElement("div"),
					name = document.createElement("b"),
					what = document.createElement("small");
				name.textContent = end.name;
				what.textContent = [end.address, end.qpn ? qpName(end.qpn) : ""]
					.filter(Boolean)
					.join(" · ");
				div.append(name, what);
				div.style.left = (side ? g.right : g.left) + "px";
				return div;
			})
		);
	}

	paintRows(parts, g, first, end) {
		const rows = this.connection.rows,
			drawn = new Set(),
			labelled = end - first <= LABELLED;
		const dense = { y: -99, left: -99, right: -99, label: -99 };
		for (let i = first; i < end; i++) this.paintGap(parts, g, rows[i], dense);
		for (let i = first; i < end; i++) parts.push(this.paintRow(g, rows[i], labelled, dense));
		for (let i = Math.max(0, first - SCAN); i < Math.min(rows.length, end + SCAN); i++)
			this.paintArrowOf(parts, g, rows[i], first, end, labelled, drawn, dense);
	}

	paintGap(parts, g, row, dense) {
		const y = this.y(this.at[row.index]);
		if (!row.gap || this.isTime || y - dense.y < 12) return;
		const above =
				y -
				((this.at[row.index] - this.at[row.index - 1] - 0.5) /
					(this.to - this.from)) *
					g.h,
			middle = (above + y - (0.5 * g.h) / (this.to - this.from)) / 2;
		if (g.h / (this.to - this.from) < 9) return;
		parts.push(
			svg("line", { class: "gap-line", x1: g.gutter, x2: g.w, y1: middle, y2: middle }),
			svg(
				"text",
				{ class: "gap", x: g.gutter + 4, y: middle - 3 },
				duration(row.gap) + " later"
			)
		);
	}

	kind(row) {
		const p = row.record;
		if (
			row.trouble ||
			(row.arrow && (row.arrow.again || isLost(row.arrow) || row.arrow.state === "corrupt"))
		)
			return "trouble";
		return p.mad ? "cm" : p.flags & REQUEST ? "request" : "answer";
	}

	paintArrowOf(parts, g, row, first, end, labelled, drawn, dense) {
		const arrow = row.arrow;
		if (!arrow || drawn.has(arrow)) return;
		const y1 = this.y(this.at[(arrow.from ?? arrow.to).index]),
			y2 = this.y(this.at[(arrow.to ?? arrow.from).index]);
		if (Math.max(y1, y2) < -4 || Math.min(y1, y2) > g.h + 4) return;
		drawn.add(arrow);
		const x1 = arrow.fromSide ? g.right : g.left,
			x2 = arrow.fromSide ? g.left : g.right;
		const kind = this.kind(arrow.from?.trouble ? arrow.from : (arrow.to ?? arrow.from));
		const isHalf = isLost(arrow),
			isOpen = arrow.state === "unseen" || arrow.state === "here";
		const endX = isHalf ? x1 + (x2 - x1) * 0.72 : x2 - 5 * Math.sign(x2 - x1),
			endY = isHalf ? y1 + (y2 - y1) * 0.72 : y2;
		const group = svg("g", {
			class: `arrow ${kind}${isOpen ? " hollow" : ""}${this.selected?.arrow === arrow ? " chosen" : ""}`,
			"data-state": arrow.state,
			"data-row": (arrow.from ?? arrow.to).index,
		});
		const angle = Math.atan2(endY - y1, endX - x1);
		group.append(
			svg("line", { class: "near", x1, y1, x2: endX, y2: endY }),
			svg("line", { x1, y1, x2: endX, y2: endY })
		);
		group.append(
			svg("path", {
				d: isHalf ? "M-5,-5L5,5M-5,5L5,-5" : "M0,0L-9,-4L-9,4Z",
				"stroke-width": isHalf ? 2.5 : 1.2,
				transform: `translate(${endX} ${endY}) rotate(${(angle * 180) / Math.PI})`,
			})
		);
		if (labelled || kind === "trouble") {
			const y = (y1 + endY) / 2 - 4;
			if (y - dense.label > (this.isTime ? 14 : 11.5) || (kind === "trouble" && y - dense.label > 9)) {
				dense.label = y;
				const tilt = Math.max(
					-12,
					Math.min(12, (Math.atan((y2 - y1) / (x2 - x1)) * 180) / Math.PI)
				);
				const x = (x1 + endX) / 2;
				group.append(
					svg(
						"text",
						{
							class: "label " + kind,
							x,
							y,
							transform: `rotate(${Math.abs(tilt) < 12 ? tilt : 0} ${x} ${y})`,
						},
						arrowLabel(this.capture, arrow)
					)
				);
			}
		}
		parts.push(group);
	}

	paintRow(g, row, labelled, dense) {
		const y = this.y(this.at[row.index]),
			r = row.record,
			x = row.side ? g.right : g.left,
			pitch = g.h / (this.to - this.from);
		const height = this.isTime ? 12 : Math.min(ROW, Math.max(3, pitch));
		const name = rowLabel(this.capture, row, this.connection);
		const group = svg("g", {
			class:
				"row" +
				(row === this.selected ? " selected" : this.isSame(row) ? " same" : "") +
				(this.hits.has(row) ? " hit" : ""),
			id: "row-" + row.index,
			"data-row": row.index,
			role: "option",
			"aria-selected": row === this.selected,
			"aria-label": `${duration(r.t - this.start)}, ${this.connection.ends[row.side].name}: ${name}`,
		});
		const isEvent = r.kind === "event";
		const strip = row.side
			? { x: g.right + 9, width: Math.max(0, g.w - g.right - 9) }
			: { x: 0, width: g.left - 9 };
		group.append(svg("rect", { class: "hit-area", y: y - height / 2, height, ...strip }));
		if (y - dense.y >= 11) {
			group.append(
				svg(
					"text",
					{ class: "time", x: g.gutter - 12, y: y + 4 },
					clock(r.t - this.start)
				)
			);
			dense.y = y;
		}
		group.append(this.dot(row, x, y));
		const lane = row.side ? "right" : "left";
		if (isEvent && labelled && y - dense[lane] >= 11.5) {
			dense[lane] = y;
			group.append(
				svg(
					"text",
					{
						class: "side" + (row.trouble ? " bad" : ""),
						x: x + (row.side ? 12 : -12),
						y: y + 4,
						"text-anchor": row.side ? "start" : "end",
					},
					this.fitted(name, row.side ? g.w - g.right : g.left - g.gutter, row.trouble)
				)
			);
		}
		return group;
	}
	/* As much of a label as fits beside its line. What all names begin with goes first. */
	fitted(text, room, isBold) {
		const width = t => this.pen.measureText(t).width + 16;
		this.pen.font = `${isBold ? 600 : 400} 12px ${this.family}`;
		if (width(text) > room) text = text.replace("RDMA_CM_EVENT_", "");
		if (width(text) <= room) return text;
		let length = Math.floor((text.length * room) / width(text)) + 2;
		while (length > 3 && width(text.slice(0, length) + "…") > room) length--;
		return text.slice(0, length) + "…";
	}
	/* Rows of the request that is selected. */
	isSame(row) {
		const selected = this.selected;
		return (
			selected &&
			((selected.request && row.request === selected.request) ||
				(selected.receive && row.receive === selected.receive))
		);
	}

	dot(row, x, y) {
		const r = row.record,
			bad = row.trouble ? " bad" : "";
		if (r.kind === "packet") return svg("circle", { class: "dot" + bad, cx: x, cy: y, r: 3 });
		if (r.event === EVENT.POST_SEND || r.event === EVENT.POST_RECEIVE)
			return svg("path", {
				class: "dot post" + bad,
				d: row.side ? "M5,-5L-4,0L5,5Z" : "M-5,-5L4,0L-5,5Z",
				transform: `translate(${x} ${y})`,
			});
		if (r.event === EVENT.COMPLETION || r.event === EVENT.POLL)
			return svg("rect", {
				class: (r.event === EVENT.COMPLETION ? "dot done" : "dot") + bad,
				x: x - 4.5,
				y: y - 4.5,
				width: 9,
				height: 9,
				rx: 1.5,
			});
		return svg("path", {
			class: "dot" + bad,
			d: "M0,-6L6,0L0,6L-6,0Z",
			transform: `translate(${x} ${y})`,
		});
	}

	/* From afar: how much happens where, and all trouble, as far as it can be told apart. */
	paintDensity(parts, g, first, end) {
		const rows = this.connection.rows,
			bins = Math.max(1, Math.floor(g.h / 4));
		const counts = [new Uint32Array(bins), new Uint32Array(bins)],
			bad = new Uint32Array(bins);
		for (let i = first; i < end; i++) {
			const bin = Math.min(
				bins - 1,
				Math.max(
					0,
					Math.floor(((this.at[i] - this.from) / (this.to - this.from)) * bins)
				)
			);
			counts[rows[i].side][bin]++;
			bad[bin] += rows[i].trouble ? 1 : 0;
		}
		const most = Math.max(1, ...counts[0], ...counts[1]),
			half = (g.right - g.left) / 2 - 20;
		for (let bin = 0; bin < bins; bin++) {
			const y = (bin * g.h) / bins;
			for (const side of [0, 1]) {
				const width = (counts[side][bin] / most) * half;
				if (width)
					parts.push(
						svg("rect", {
							class: "density" + (side ? " answers" : ""),
							x: side ? g.right - width : g.left,
							y,
							width,
							height: g.h / bins - 1,
						})
					);
			}
			if (bad[bin])
				parts.push(
					svg("path", {
						class: "mark",
						d: "M-6,-4L0,0L-6,4Z M6,-4L0,0L6,4Z",
						transform: `translate(${(g.left + g.right) / 2} ${y + 2})`,
					})
				);
		}
		this.paintClock(parts, g);
		parts.push(
			svg(
				"text",
				{ class: "label", x: (g.left + g.right) / 2, y: 18 },
				`${(end - first).toLocaleString("en")} events in view; zoom in for arrows`
			)
		);
	}
	paintClock(parts, g) {
		for (let y = 12; y < g.h; y += 48) {
			const row =
				this.connection.rows[
					Math.min(
						this.at.length - 1,
						this.search(this.from + (y / g.h) * (this.to - this.from))
					)
				];
			parts.push(
				svg(
					"text",
					{ class: "time", x: g.gutter - 12, y },
					clock(row.record.t - this.start)
				)
			);
		}
	}

	/* ---- the overview ---- */

	paintOverview() {
		const h = Math.max(1, this.overview.clientHeight),
			bins = new Uint32Array(h),
			bad = new Uint8Array(h);
		this.connection.rows.forEach((row, i) => {
			const y = Math.min(h - 1, Math.floor((this.at[i] / this.length) * h));
			bins[y]++;
			bad[y] |= row.trouble ? 1 : 0;
		});
		this.bins = bins;
		this.bad = bad;
		this.most = bins.reduce((a, b) => Math.max(a, b), 1);
	}
	paintWindow() {
		const canvas = this.overview,
			h = this.bins.length,
			style = getComputedStyle(document.documentElement);
		const colour = name => style.getPropertyValue(name).trim();
		canvas.width = 28;
		canvas.height = h;
		const c = canvas.getContext("2d");
		c.fillStyle = colour("--raised");
		c.fillRect(0, 0, 28, h);
		c.fillStyle = colour("--selected");
		const top = (this.from / this.length) * h;
		c.fillRect(0, top, 28, Math.max(3, ((this.to - this.from) / this.length) * h));
		for (let y = 0; y < h; y++) {
			if (!this.bins[y]) continue;
			c.fillStyle = colour(this.bad[y] ? "--trouble" : "--lane");
			const width = this.bad[y] ? 20 : 3 + (14 * this.bins[y]) / this.most;
			c.fillRect(4, y, width, this.bad[y] ? 2 : 1);
		}
		c.strokeStyle = colour("--faint");
		c.strokeRect(0.5, top + 0.5, 27, Math.max(3, ((this.to - this.from) / this.length) * h) - 1);
	}
}

/* ---- words ---- */

function clock(ns) {
	if (ns < 1e6) return (ns / 1e3).toFixed(1) + " µs";
	return ns < 1e9 ? (ns / 1e6).toFixed(3) + " ms" : (ns / 1e9).toFixed(6) + " s";
}

function arrowLabel(capture, arrow) {
	const done = faultsOf(arrow).flatMap(faultWords),
		note = { lost: " · lost", corrupt: " · dropped: ICRC" }[arrow.state] ?? "";
	if (arrow.packet.injected) done.push("lost");
	return (
		packetLabel(capture, arrow.packet) +
		(arrow.again ? " · again" : "") +
		(done.length ? ` · ${done.join(", ")} on purpose` : "") +
		note
	);
}
function packetLabel(capture, p) {
	if (p.opcode === undefined) return "no packet of RoCE";
	if (p.mad)
		return p.reason === undefined
			? p.mad
			: `${p.mad}: ${capture.formats.reject[p.reason] ?? p.reason}`;
	const bytes = p.bytes ?? p.payloadBytes;
	if (p.syndrome !== undefined && p.operation === "ACK")
		return `${p.syndrome >> 5 ? capture.syndrome(p.syndrome) : "ACK"} · PSN ${p.psn}`;
	return `${p.name ?? "opcode " + p.opcode} · PSN ${p.psn}${bytes ? " · " + inBytes(bytes) : ""}`;
}
const inBytes = bytes => bytes.toLocaleString("en") + (bytes === 1 ? " byte" : " bytes");
const wrName = wr => (wr < 1000000n ? String(wr) : "0x" + wr.toString(16));
function eventLabel(capture, e) {
	const status = e.status ? " " + (capture.formats.statuses[e.status] ?? "status " + e.status) : "";
	switch (e.event) {
		case EVENT.POST_SEND:
			return (
				`post ${capture.formats.work[e.opcode] ?? "?"} · wr_id ${wrName(e.wr)} · ` +
				inBytes(e.bytes) +
				(e.status ? " refused" : "")
			);
		case EVENT.POST_RECEIVE:
			return `post receive · wr_id ${wrName(e.wr)}${e.status ? " refused" : ""}`;
		case EVENT.COMPLETION:
			return `${e.flags & IS_RECEIVE ? "received" : "completed"} · wr_id ${wrName(e.wr)}${status}`;
		case EVENT.POLL:
			return `polled · wr_id ${wrName(e.wr)}${status}`;
	}
	return e.text || eventWord(e.event);
}
function rowLabel(capture, row) {
	const r = row.record;
	if (r.kind === "event") return eventLabel(capture, r);
	return (r.out ? "sends " : "gets ") + arrowLabel(capture, row.arrow);
}
