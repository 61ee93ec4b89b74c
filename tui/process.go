package tui

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"holdfast/fslock/proc"
	"holdfast/fslock/verdict"
	"holdfast/tui/text"
	"holdfast/watch"
)

// processAge is how old an answer about a process may get while it is shown.
const processAge = 5 * time.Second

// processOf is the pid whose process the Process tab shows: the holder as it is seen from here, or whoever has
// its number now; 0: none on this machine.
func processOf(e *watch.Entry) int {
	seen := e.Seen()
	switch {
	case seen == nil:
		return 0
	case seen.Proc.PID != 0:
		return seen.Proc.PID
	default:
		return seen.Proc.Occupant.PID
	}
}

// processLines is the Process tab.
func (m *model) processLines(r *row, w int) []string {
	p := m.paint
	var lines []string
	say := func(t tone, s string) {
		for _, part := range p.wrap(p.Safe(s), w-2) {
			lines = append(lines, p.line(w).put(plain, " ").put(t, part).String())
		}
	}
	fact := func(name, s string) {
		if s != "" {
			lines = append(lines, m.factLines(name, p.Safe(s), w, plain)...)
		}
	}
	pid := processOf(r.entry)
	if pid == 0 {
		if r.holder == nil {
			say(plain, "No record names a process.")
		} else {
			say(plain, fmt.Sprintf("There is no process to show: pid %d of %s is not seen from here.", r.holder.PID, cmp.Or(r.holder.Host, "an unknown host")))
		}
		return append(lines, m.shared(r, w)...)
	}
	if seen := r.entry.Seen(); seen.Proc.Answer == proc.Dead && seen.Proc.PID == 0 {
		say(warn, fmt.Sprintf("This is not the holder: it has the pid %d now.", pid))
	}
	answer := m.process
	switch {
	case answer.pid != pid:
		say(faint, fmt.Sprintf("Looking at pid %d.", pid))
		return lines
	case errors.Is(answer.err, proc.ErrNoProcess):
		say(plain, fmt.Sprintf("There is no process %d any more.", pid))
		return append(lines, m.shared(r, w)...)
	case answer.err != nil:
		say(bad, "It cannot be looked at: "+answer.err.Error())
		return append(lines, m.shared(r, w)...)
	}
	d := &answer.details
	fact("process", fmt.Sprintf("%d %s", d.PID, d.Name))
	fact("command", d.Command)
	fact("user", d.User)
	fact("state", d.Status)
	if !d.Started.IsZero() {
		fact("started", fmt.Sprintf("%s, %s ago", d.Started.Format(time.DateTime), text.Long(verdict.Age(d.Started, m.now))))
	}
	if d.CPUPercent > 0 || d.MemoryRSS > 0 {
		fact("uses", fmt.Sprintf("%.1f %% CPU over its life, %s of memory", d.CPUPercent, bytesWord(d.MemoryRSS)))
	}
	lines = append(lines, m.treeLines(d, w)...)
	return append(lines, m.shared(r, w)...)
}

// treeLines are the ancestors of a process, the first one first, each deeper than the one before, and itself.
func (m *model) treeLines(d *proc.Details, w int) []string {
	if len(d.Parents) == 0 {
		return nil
	}
	const step = 2
	p, head := m.paint, "tree"
	line := append([]proc.Process{d.Process}, d.Parents...)
	slices.Reverse(line)
	var lines []string
	for i, of := range line {
		l := p.line(w).to(3).put(faint, head).to(min(3+factWidth+i*step, w/2)) // half of a narrow line is left to the names
		lines = append(lines, l.put(plain, p.Safe(fmt.Sprintf("%d %s", of.PID, of.Name))).String())
		head = ""
	}
	return lines
}

// shared are who waits for the entry, and the other entries of the same process.
func (m *model) shared(r *row, w int) []string {
	var lines []string
	for _, f := range waitFacts(r.entry) {
		lines = append(lines, m.factLines(f.Head, m.paint.Safe(f.Says), w, plain)...)
	}
	pid := processOf(r.entry)
	if pid == 0 {
		return lines
	}
	for _, other := range m.all {
		if other.entry.Kind == watch.Temp || other.ref() == r.ref() || processOf(other.entry) != pid || other.holder == nil {
			continue
		}
		lines = append(lines, m.factLines("holds too", other.name, w, plain)...)
	}
	return lines
}

func bytesWord(n uint64) string {
	switch {
	case n >= 1<<30:
		return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
	case n >= 1<<20:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	default:
		return fmt.Sprintf("%d KiB", n>>10)
	}
}

// maxRaw bounds how much of a file the Raw tab shows, in bytes: nobody reads 64 KiB there.
const maxRaw = 4 << 10

// rawLines is the Raw tab: the file's bytes, escaped, with the offending one marked.
func (m *model) rawLines(r *row, w int) []string {
	p := m.paint
	raw := r.entry.Raw
	seen := r.entry.Seen()
	line := func(t tone, s string) string { return p.line(w).put(plain, " ").put(t, s).String() }
	switch {
	case raw == nil && seen != nil && seen.Missing:
		return []string{line(plain, "There is no file.")}
	case raw == nil:
		return []string{line(plain, "The file was not read.")}
	case len(raw) == 0:
		return []string{line(plain, "The file is empty.")}
	}
	offending := int64(-1)
	if seen != nil && seen.Problem != nil && seen.Problem.Offset <= int64(len(raw)) {
		offending = seen.Problem.Offset
	}
	lines := []string{line(faint, fmt.Sprintf("%d bytes", len(raw)))}
	room := max(4, w-2)
	var piece strings.Builder
	mark := -1 // the column of the offending byte in this piece
	flush := func() {
		lines = append(lines, line(plain, piece.String()))
		if mark >= 0 {
			lines = append(lines, p.line(w).to(1+mark).put(bad, p.glyph(upGlyph)).put(bad, fmt.Sprintf(" byte %d", offending)).String())
		}
		piece.Reset()
		mark = -1
	}
	for at := 0; at < min(len(raw), maxRaw); {
		_, size := utf8.DecodeRune(raw[at:])
		shown := p.Safe(string(raw[at : at+size]))
		if text.Width(piece.String())+text.Width(shown) > room {
			flush()
		}
		if offending >= int64(at) && offending < int64(at+size) {
			mark = text.Width(piece.String())
		}
		if raw[at] == '\n' {
			shown = ""
		}
		piece.WriteString(shown)
		if raw[at] == '\n' {
			flush()
		}
		at += size
	}
	if offending == int64(len(raw)) && len(raw) <= maxRaw {
		mark = text.Width(piece.String()) // what should follow is missing
	}
	if piece.Len() > 0 || mark >= 0 {
		flush()
	}
	if len(raw) > maxRaw {
		lines = append(lines, line(faint, fmt.Sprintf("and %d bytes more", len(raw)-maxRaw)))
	}
	return lines
}
