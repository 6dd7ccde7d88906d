/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the ladder shows, as a picture that stands by itself: an SVG with the names of both ends, and with the
 * rules of the page's style that it needs.
 */

const HEAD = 44;

function rulesFor(picture) {
	const isNeeded = rule =>
		rule.selectorText
			? rule.selectorText.startsWith(":root") || picture.querySelector(rule.selectorText)
			: rule.media?.mediaText.includes("color-scheme");
	return [...document.styleSheets[0].cssRules].filter(isNeeded).map(rule => rule.cssText);
}

/* What only a page needs: areas to click at, and what screen readers are told. */
function withoutThePage(element) {
	element.querySelectorAll(".hit-area, .near").forEach(part => part.remove());
	for (const part of element.querySelectorAll("*"))
		for (const { name } of [...part.attributes])
			if (/^(id|role|aria-|data-)/.test(name)) part.removeAttribute(name);
	return element;
}

function endNames(ladder) {
	return ladder.connection.ends.flatMap((end, side) => {
		const x = side ? ladder.g.right : ladder.g.left,
			place = [end.address, end.qpn ? qpName(end.qpn) : ""].filter(Boolean).join(" · ");
		return [
			svg("text", { class: "end", x, y: 18 }, end.name),
			svg("text", { class: "place", x, y: 35 }, place),
		];
	});
}

/* The text of an SVG file. */
function pictureOf(ladder) {
	const { w, h } = ladder.g,
		picture = svg("svg", { xmlns: SVG, viewBox: `0 0 ${w} ${h + HEAD}`, width: w, height: h + HEAD }),
		rows = svg("g", { transform: `translate(0 ${HEAD})` });
	rows.append(...ladder.element.cloneNode(true).childNodes);
	picture.append(...endNames(ladder), withoutThePage(rows));
	const rules = [
		...rulesFor(picture),
		"svg { background: var(--back); font-family: system-ui, 'DejaVu Sans', sans-serif }",
		".end, .place { text-anchor: middle } .end { font-weight: 650; font-size: 14px }",
		".place { fill: var(--faint) }",
	];
	picture.prepend(svg("style", {}, rules.join("\n")));
	return new XMLSerializer().serializeToString(picture) + "\n";
}
