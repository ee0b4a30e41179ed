// Makes the headers of a table's columns buttons that sort its first body.
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells], rows = table.tBodies[0].rows;
  const key = (row, column) => {
    const cell = row.cells[column], text = cell.textContent.trim();
    if (cell.tagName === "TD") return "value" in cell.dataset ? Number(cell.dataset.value) : null;
    if (text === "–" || text === "") return null;
    // A heading may have a mark after its number, or say how many: "1,200 †", "3 of 10".
    return /^[-+]?[\d.,]+(e[-+]?\d+)?( .*)?$/.test(text) ? parseFloat(text.replaceAll(",", "")) : text;
  };
  heads.forEach((head, column) => {
    if (head.tagName !== "TH") return;
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const known = [...rows].map((row) => key(row, column)).filter((value) => value !== null);
      const numbers = known.length > 0 && known.every((value) => typeof value === "number");
      const compare = (a, b) => (numbers ? a - b : String(a).localeCompare(String(b), undefined, { numeric: true }));
      const first = numbers && head.dataset.better !== "lower" ? "descending" : "ascending";
      const other = first === "ascending" ? "descending" : "ascending";
      const order = head.getAttribute("aria-sort") === first ? other : first;
      const sign = order === "ascending" ? 1 : -1;
      const keyed = [...rows].map((row) => [key(row, column), row]);
      keyed.sort(([a], [b]) => (a === null ? (b === null ? 0 : 1) : b === null ? -1 : sign * compare(a, b)));
      for (const other of heads) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", order);
      table.tBodies[0].append(...keyed.map(([, row]) => row));
    });
  });
  const note = document.createElement("span");
  note.className = "unseen";
  note.textContent = " The headers of the columns are buttons that sort the rows.";
  table.caption.append(note);
}
