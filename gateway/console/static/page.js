// Pieces of pages, made of text.

export function element(name, text = "", style = "") {
  const made = document.createElement(name);
  made.textContent = text;
  if (style) made.className = style;
  return made;
}

export function drawn(name, attributes) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

export function seconds(value) {
  if (value < 0.9995) return `${(value * 1000).toFixed(0)} ms`;
  return value < 100 ? `${value.toFixed(1)} s` : `${(value / 60).toFixed(1)} min`;
}

// New rows in the place of the old; whoever has the focus on a button of a row has it on the same one afterwards.
export function fill(table, rows, empty) {
  const body = table.tBodies[0];
  const focused = body.contains(document.activeElement) ? document.activeElement.dataset.key : undefined;
  body.replaceChildren(...rows.map((cells) => {
    const row = document.createElement("tr");
    for (const cell of cells) {
      const made = document.createElement("td");
      made.append(cell instanceof Node ? cell : String(cell));
      row.append(made);
    }
    return row;
  }));
  if (!rows.length) {
    const row = body.insertRow();
    const cell = row.insertCell();
    cell.colSpan = table.tHead.rows[0].cells.length;
    cell.className = "empty";
    cell.textContent = empty;
  }
  if (focused) body.querySelector(`[data-key="${CSS.escape(focused)}"]`)?.focus();
}
