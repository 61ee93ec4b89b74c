package cli

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"holdfast/fslock/verdict"
	"holdfast/tui"
	"holdfast/tui/text"
	"holdfast/watch"
)

// columns is how many columns the table has at most; a narrow terminal keeps the first.
const columns = int(tui.ColHost) + 1

// minName is the least width of a name that still tells something; columns to its right are given up for it.
const minName = 24

// limit is how many cells of a text from disk a column has room for; 0: of that column nothing is from disk. One
// hostile record must not spoil the whole table.
func limit(c tui.Column) int {
	switch c {
	case tui.ColName:
		return maxName
	case tui.ColHolder, tui.ColHost:
		return 24
	default:
		return 0
	}
}

// row is one line of the table, without its colour.
type row struct {
	state verdict.State
	cells [columns]string
	marks string // what follows the name, and is not cut with it
}

// table prints the headline and the entries, problems first. Tokens and temps are a mark on their lock's row where
// that is shown, and are counted.
func (a *app) table(w io.Writer, snap *watch.Snapshot, entries []*watch.Entry, filtered bool) {
	st := a.style()
	fmt.Fprintln(w, headline(st, snap)+counts(snap))
	tellUnseen(w, st, unseen(snap))
	switch {
	case len(entries) > 0:
	case filtered && len(snap.Entries) > 0:
		fmt.Fprintln(w, "None of these matches.")
		return
	default:
		a.tellEmpty(w, snap)
		return
	}
	entries = slices.Clone(entries) // they can be those of a snapshot that others look at
	watch.SortByUrgency(entries)
	locks := map[string]bool{}
	for _, e := range entries {
		if e.Kind == watch.Lock {
			locks[e.Path] = true
		}
	}
	temps := map[string]int{}
	for _, e := range entries {
		if e.Kind == watch.Temp && locks[e.LockOf] {
			temps[e.LockOf]++
		}
	}
	rows := []row{head()}
	for _, e := range entries {
		if e.LockOf != "" && locks[e.LockOf] {
			continue
		}
		rows = append(rows, line(st, e, snap, temps[e.Path]))
	}
	a.printRows(w, st, rows)
}

func head() (r row) {
	for i := range r.cells {
		r.cells[i] = tui.Column(i).String()
	}
	return r
}

func line(st text.Style, e *watch.Entry, snap *watch.Snapshot, temps int) row {
	r := row{state: e.Verdict.State}
	for i := range r.cells {
		c := tui.Column(i)
		r.cells[i] = c.Cell(st, e, e.Verdict, snap.Time)
		if most := limit(c); most > 0 {
			r.cells[i] = st.CutMiddle(r.cells[i], most)
		}
		if r.cells[i] == "" && c != tui.ColLeft {
			r.cells[i] = "-"
		}
	}
	if !e.Unseen.IsZero() {
		r.marks = " " + tui.UnseenMark
	}
	if marks := st.Marks(e.Verdict.Flags, e.Held(snap.Time)); marks != "" {
		r.marks += " " + marks
	}
	if e.Token != nil {
		r.marks += " +token"
	}
	switch {
	case temps == 1:
		r.marks += " +temp"
	case temps > 1:
		r.marks += fmt.Sprintf(" +%d temps", temps)
	}
	return r
}

// printRows prints the rows in columns: to a pipe as wide as they are, within the width of a terminal by giving up
// columns from the end and then cutting names in the middle.
func (a *app) printRows(w io.Writer, st text.Style, rows []row) {
	const name = int(tui.ColName)
	var width [columns]int
	for _, r := range rows {
		for i, cell := range r.cells {
			if i == name {
				cell += r.marks
			}
			width[i] = max(width[i], text.Width(cell))
		}
	}
	shown := columns
	if a.Output && a.Width > 0 {
		total := func() int {
			sum := shown - 1
			for _, w := range width[:shown] {
				sum += w
			}
			return sum
		}
		for shown > name+1 && total()-width[name]+min(width[name], minName) > a.Width {
			shown--
		}
		if over := total() - a.Width; over > 0 {
			width[name] = max(1, width[name]-over)
		}
	}
	color := text.Color(a.color, a.Getenv, a.Output)
	for n, r := range rows {
		cells := r.cells[:shown]
		for i, cell := range cells {
			switch {
			case i == name:
				marks := st.Cut(r.marks, max(width[i]/2, width[i]-text.Width(cell)))
				cells[i] = st.Pad(st.CutMiddle(cell, width[i]-text.Width(marks))+marks, width[i])
			case tui.Column(i).Number():
				cells[i] = st.PadLeft(cell, width[i])
			default:
				cells[i] = st.Pad(cell, width[i])
			}
		}
		if n > 0 && color {
			cells[tui.ColState] = text.Colour(r.state, cells[tui.ColState])
		}
		fmt.Fprintln(w, strings.TrimRight(strings.Join(cells, " "), " "))
	}
}

// counts tells how much was looked at.
func counts(snap *watch.Snapshot) string {
	var n [watch.Temp + 1]int
	for i := range snap.Entries {
		n[snap.Entries[i].Kind]++
	}
	var parts []string
	for kind := watch.Lease; kind <= watch.Temp; kind++ {
		if n[kind] > 0 {
			parts = append(parts, text.Count(n[kind], kind.String()))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return "  (" + strings.Join(parts, ", ") + ")"
}

// tellEmpty says what was looked for, where, and what chose that place.
func (a *app) tellEmpty(w io.Writer, snap *watch.Snapshot) {
	for _, line := range tui.Empty(snap) {
		fmt.Fprintln(w, a.style().Safe(line))
	}
}
