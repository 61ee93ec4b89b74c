package tui

import (
	"fmt"
	"strings"
	"time"

	"holdfast/fslock/verdict"
	"holdfast/tui/text"
	"holdfast/watch"
)

// dialogDeaf is how long a dialog ignores keys after it opened: what was typed before it could be read was not
// meant for it.
const dialogDeaf = 400 * time.Millisecond

type dialogKind uint8

const (
	dialogTake dialogKind = iota // claim, acquire
	dialogRelease
	dialogBreak
	dialogSweep
	dialogQuit
)

// dialog is an open question. What it is about is fixed when it opens.
type dialog struct {
	kind    dialogKind
	title   string // safe
	target  target
	facts   []Fact // safe
	command string // the same as a command, safe; "": none does the same while the screen lives
	confirm string // what y does, one or two words
	watched bool   // it is watched for a while before it is done
	opened  time.Time
	changed string  // why it cannot be confirmed any more; "": it can
	top     int     // the first line that is shown
	chunk   bool    // several keys came at once and were not taken for anything
	typing  *typing // what must be typed to confirm; nil: y confirms
	many    []piece // of a plan for several entries, which has no target of its own; nil: it is for one

	// Of a sweep.
	number uint64    // tells its plan from that of an earlier one
	sweep  *sweeping // nil: it is being planned
}

// typing is the third level of confirmation: the name of what is acted on, and the reason for the audit log.
type typing struct {
	want         string // safe
	name, reason field
	onReason     bool // which of the two keys go to
	refused      bool // characters came several at once, and were not taken for the name
	wrong        bool // enter was pressed on another name
}

// maxTyped bounds each line, in characters, where the name is no longer.
const maxTyped = 200

func newTyping(want string) *typing {
	return &typing{want: want, name: newField("", max(maxTyped, 2*len(want))), reason: newField("", maxTyped)}
}

// why is what the reason says, without space around it.
func (t *typing) why() string { return strings.TrimSpace(t.reason.value()) }

// lacks says what is still to be typed; "": nothing.
func (t *typing) lacks() string {
	switch {
	case t.refused:
		return "the name is typed key by key, not pasted"
	case t.wrong && strings.TrimSpace(t.name.value()) != "":
		return "that is not " + t.want
	case !t.named():
		return "type " + t.want + " to confirm"
	case t.why() == "":
		return "a reason is wanted"
	default:
		return ""
	}
}

func (t *typing) named() bool { return strings.TrimSpace(t.name.value()) == strings.TrimSpace(t.want) }

// press types. The name takes nothing but keys that were pressed one by one: whoever pastes it has not read it.
func (t *typing) press(k keyPress) {
	t.refused, t.wrong = !t.onReason && (!k.single || k.pasted), false
	switch {
	case t.onReason:
		t.reason.press(k)
	case k.single:
		t.name.press(k)
	}
}

// askQuit is the question before what is held is given up.
func (m *model) askQuit() *dialog {
	return &dialog{kind: dialogQuit, title: "quit?", opened: m.clock}
}

// quitQuestion is the question in full, for as much as is held now.
func (m *model) quitQuestion() string {
	return fmt.Sprintf("You hold %s.  enter release and quit   esc stay", m.heldWords())
}

// heldWords count what is held: "2 leases and 1 lock".
func (m *model) heldWords() string {
	locks := 0
	for _, h := range m.held {
		if h.ref.kind == watch.Lock {
			locks++
		}
	}
	var parts []string
	if n := len(m.held) - locks; n > 0 {
		parts = append(parts, text.Count(n, "lease"))
	}
	if locks > 0 {
		parts = append(parts, text.Count(locks, "lock"))
	}
	return strings.Join(parts, " and ")
}

// mayAct says why nothing can be changed now, if so.
func (m *model) mayAct(what string) bool {
	why := m.inert()
	if why != "" {
		m.complain("%s, but %s", what, why)
	}
	return why == ""
}

// recheck looks whether what an open plan is about is still so. Beats and time are no change; all else kills
// its confirm key, because the person agreed to something that is not there any more.
func (m *model) recheck(d *dialog) {
	switch {
	case d.kind == dialogQuit:
		if len(m.held) == 0 {
			m.dialog = nil
		}
	case d.kind == dialogSweep:
		m.recheckSweep(d)
	case d.many != nil:
		m.recheckMany(d)
	default:
		e := m.find(d.target.ref)
		back := ""
		if d.changed != "" && e != nil {
			back = m.paint.Safe("It changed since this plan was made, and is now as it was: " + stateWords(e.Judge(m.clock)))
		}
		d.spoil(m.changeOf(d.kind, &d.target, e), back)
	}
}

// spoil says what of a plan is not so any more. A plan that was spoilt stays so, but what it says is how things are now:
// back is said when they are again as the plan says.
func (d *dialog) spoil(now, back string) {
	switch {
	case now == "" && d.changed != "":
		now = back
	case now != "" && d.changed == "":
		d.top = 0 // where it is told
	}
	d.changed = now
}

// changeOf says in safe text how the entry e, nil when it is gone, is not what a plan for t was made for; "": it is.
func (m *model) changeOf(kind dialogKind, t *target, e *watch.Entry) string {
	switch {
	case e == nil:
		return "It is gone since this plan was made."
	case !e.Unseen.IsZero():
		return "It cannot be looked at since this plan was made: nobody knows what is there now."
	case kind == dialogRelease:
		if own := m.hold(e); own == nil || own.nonce != t.nonce {
			return "This screen does not hold it any more."
		}
	case targetOf(e, m.clock) != *t:
		return m.paint.Safe("It changed since this plan was made: " + stateWords(e.Judge(m.clock)))
	case kind == dialogBreak && m.hold(e) != nil:
		return "This screen holds it now."
	}
	return ""
}

// dead reports whether a plan cannot be confirmed, now or for good.
func (m *model) dead(d *dialog) bool {
	return d.changed != "" || m.readOnly || m.stale() || d.many != nil && len(d.many) == 0 ||
		d.kind == dialogSweep && (d.sweep == nil || len(d.sweep.removed) == 0)
}

// answer is what keys do while a dialog is open: esc leaves it, y confirms a plan, enter confirms leaving.
func (m *model) answer(k keyPress) []command {
	d := m.dialog
	leaves := k.single && k.name == "esc"
	if !leaves && m.clock.Sub(d.opened) < dialogDeaf {
		return nil
	}
	if d.typing != nil {
		return m.answerTyped(d, k)
	}
	d.chunk = !k.single && !k.pasted
	if !k.single {
		return nil
	}
	if d.kind == dialogQuit {
		switch k.name {
		case "enter":
			return []command{{quit: true}}
		case "esc", "n":
			m.dialog = nil
		}
		return nil
	}
	switch k.name {
	case "esc", "enter", "n", "q":
		m.dialog = nil
	case "j", "down":
		d.top++
	case "k", "up":
		d.top = max(0, d.top-1)
	case "y":
		return m.confirm(d)
	}
	return nil
}

// answerTyped is what keys do while a plan wants something typed.
func (m *model) answerTyped(d *dialog, k keyPress) []command {
	t := d.typing
	if !k.single {
		t.press(k)
		return nil
	}
	switch k.name {
	case "esc":
		m.dialog = nil
	case "tab", "shift+tab", "up", "down":
		t.onReason = !t.onReason
	case "pgdown":
		d.top++
	case "pgup":
		d.top = max(0, d.top-1)
	case "enter":
		switch {
		case t.lacks() == "":
			return m.confirm(d)
		case !t.named() && t.name.value() != "":
			t.onReason, t.wrong = false, true
		case !t.onReason:
			t.onReason = true
		case t.why() != "":
			t.onReason = false
		}
	default:
		t.press(k)
	}
	return nil
}

// confirm agrees to a plan, if what it is about is still so.
func (m *model) confirm(d *dialog) []command {
	m.recheck(d)
	if m.dead(d) {
		return nil
	}
	m.dialog = nil
	m.working++
	return []command{{run: m.job(d), acts: true}}
}

// cancelButton is the one thing in a dialog that the mouse can press.
const cancelButton = "[ Cancel ]"

// room is how many lines of a plan are in sight, of a dialog with so many lines below it.
func room(body rect, foot int) int { return max(0, body.h-1-foot) }

// overlay lays the open dialog over the lower end of the body, so that the rows above stay in sight.
func (m *model) overlay(lines []string, r rect) []string {
	box := m.dialogBox(r)
	return append(lines[:r.h-len(box)], box...)
}

// dialogBox is the open dialog as it is laid over the end of r.
func (m *model) dialogBox(r rect) []string {
	plan, foot := m.dialogLines(r.w)
	room := room(r, len(foot))
	top := max(0, min(m.dialog.top, len(plan)-room))
	note := ""
	if len(plan) > room {
		keys := "j k"
		if m.dialog.typing != nil {
			keys = "pgup pgdn"
		}
		note = fmt.Sprintf("%s scroll %d/%d", keys, min(top+room, len(plan)), len(plan))
		plan = plan[top : top+room]
	}
	box := append([]string{m.paint.rule(r.w, m.dialog.title, note)}, plan...)
	box = append(box, foot...)
	if spare := r.h - len(box); spare > 1 {
		box = append(box, m.paint.rule(r.w, "", ""))
	}
	return box
}

// dialogLines is the dialog in w columns: its plan, and apart from it the lines that always stay in sight.
func (m *model) dialogLines(w int) (plan, foot []string) {
	d, p := m.dialog, m.paint
	if d.kind == dialogQuit {
		for _, s := range p.wrap(m.quitQuestion(), w-2) {
			plan = append(plan, p.line(w).put(plain, " ").put(strong, s).String())
		}
		if len(plan) == 1 {
			plan[0] = p.line(w).put(plain, " ").put(strong, m.quitQuestion()).String() // its wide gaps kept
		}
		return plan, nil
	}
	for _, f := range d.facts {
		plan = append(plan, m.factLines(f.Head, f.Says, w, plain)...)
	}
	if d.command != "" {
		command := d.command
		if t := d.typing; t != nil {
			reason := "TEXT"
			if why := t.why(); why != "" {
				reason = p.Safe(verdict.Quote(why))
			}
			command += " --force --reason " + reason
		}
		plan = append(plan, m.factLines("command", command, w, plain)...)
	}
	cancel := p.line(w).put(plain, " ").put(strong, p.glyph(cursorGlyph)+cancelButton)
	switch {
	case d.changed != "":
		// First, where it is in sight whatever the plan's length.
		plan = append(m.factLines("but", d.changed+" Look again before you act.", w, bad), plan...)
		return plan, []string{cancel.put(faint, "   this plan cannot be confirmed any more").String()}
	case m.stale():
		return plan, []string{cancel.put(faint, "   the picture is stale: it waits for a fresh look").String()}
	case m.dead(d):
		return plan, []string{cancel.put(plain, "   esc cancel").String()}
	case d.typing != nil:
		return plan, m.typedLines(d, w)
	}
	return plan, []string{cancel.put(plain, "   y "+d.confirm+"   esc cancel").String()}
}

// typedLines are the two lines that are typed, and what they still lack.
func (m *model) typedLines(d *dialog, w int) []string {
	p, t := m.paint, d.typing
	row := func(head string, f *field, here bool) string {
		l := p.line(w)
		mark := "  "
		if here {
			mark = " " + p.glyph(cursorGlyph)
		}
		l.put(strong, mark).put(plain, " ").put(faint, head).to(3 + factWidth)
		before, behind := f.split()
		before, behind = p.Safe(before), p.Safe(behind)
		if room := w - l.used - 4; text.Width(before) > room {
			before = p.Ellipsis() + text.Tail(before, room-1)
		}
		l.put(plain, before)
		if here {
			l.put(strong, p.glyph(caretGlyph))
		}
		return l.put(plain, behind).String()
	}
	keys := p.line(w).put(plain, "   ")
	if lacks := t.lacks(); lacks != "" {
		const others = "   tab other line   esc cancel"
		keys.put(strong, p.Cut(lacks, w-3-len(others))).put(plain, others)
	} else {
		keys.put(plain, "enter ").put(strong, d.confirm).put(plain, "   esc cancel")
	}
	return []string{row("name", &t.name, !t.onReason), row("reason", &t.reason, t.onReason), keys.String()}
}
