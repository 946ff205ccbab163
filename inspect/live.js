"use strict";
// Updates the list each second. It leaves the lines alone while one of them has the focus or a part of
// the selection.
const rows = document.getElementById("rows"), state = document.getElementById("live");
let stream;

function busy() {
	const s = document.getSelection();
	return rows.contains(document.activeElement) || (s && !s.isCollapsed && rows.contains(s.anchorNode));
}

function show(text, id) {
	const at = document.getElementById(id);
	if (at && at.textContent !== text) at.textContent = text;
}

function start() {
	stream = new EventSource(rows.dataset.events);
	stream.onmessage = (e) => {
		const u = JSON.parse(e.data);
		if (!busy()) rows.innerHTML = u.rows;
		show(u.as_of, "asof");
		show(u.walk, "walk");
		show(String(u.held), "count-held");
		show(String(u.stuck), "count-stuck");
		show(busy() ? "the list waits while you use it" : "live", "live");
	};
	stream.onerror = () => show("not live: the connection is lost", "live");
}

if (rows) {
	start();
	document.addEventListener("visibilitychange", () => {
		stream.close();
		if (!document.hidden) start();
	});
}
