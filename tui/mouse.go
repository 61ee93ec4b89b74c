package tui

import (
	"reflect"
	"regexp"
	"strings"
	"time"

	tea "github.com/charmbracelet/bubbletea"
	"github.com/charmbracelet/x/ansi"

	"holdfast/tui/text"
)

// pointing is something that the mouse did at a cell of the screen.
type pointing struct {
	x, y int
	what pointed
}

type pointed uint8

const (
	clicked pointed = iota // the left button went down
	wheeledUp
	wheeledDown
)

// wheelStep is how many lines one notch of the wheel scrolls.
const wheelStep = 3

// mouseMode is what a command wants done with the terminal's reports of the mouse.
type mouseMode uint8

const (
	mouseAsIs mouseMode = iota
	mouseOn
	mouseOff
)

func (r rect) has(x, y int) bool { return x >= r.x && x < r.x+r.w && y >= r.y && y < r.y+r.h }

// toggleMouse turns the reports off, so that the terminal selects text itself, and on again.
func (m *model) toggleMouse() []command {
	m.mouseless = !m.mouseless
	if m.mouseless {
		m.say("The mouse is the terminal's: it selects text. m gives it back to this screen.")
		return []command{{mouse: mouseOff}}
	}
	m.say("The mouse is this screen's again. m gives it to the terminal, to select text.")
	return []command{{mouse: mouseOn}}
}

// point does what the mouse means where it is. It selects, sorts, scrolls and leaves, and presses a key that the footer
// names, which at most opens a plan; it never confirms.
func (m *model) point(p pointing) []command {
	if m.layout().class == tiny || m.mouseless {
		return nil
	}
	if p.what == clicked {
		return m.click(p.x, p.y)
	}
	step := wheelStep
	if p.what == wheeledUp {
		step = -step
	}
	m.wheel(p.x, p.y, step)
	return nil
}

func (m *model) click(x, y int) []command {
	if m.dialog != nil {
		m.clickDialog(x, y)
		return nil
	}
	if m.note.text != "" && m.input == nil && m.palette == nil {
		onNote := y >= m.h-len(m.noteLines())
		m.note = note{}
		if onNote {
			return nil // what is below it could not be seen
		}
	}
	l := m.layout()
	if l.footer.has(x, y) && m.input == nil && m.palette == nil {
		return m.clickFooter(x)
	}
	if m.help || m.covered() {
		return nil
	}
	if m.input != nil {
		if m.input.err != nil {
			return nil
		}
		m.input = nil // as with enter: the filter stays
	}
	switch {
	case l.list.has(x, y) && y == l.list.y:
		m.clickHead(x - l.list.x)
	case l.list.has(x, y):
		if at := m.top + y - l.list.y - 1; at < len(m.rows) {
			m.focused = false
			m.goTo(at)
		}
	case l.detail.has(x, y) && y == l.detail.y && m.clickTab(x-l.detail.x):
	case l.detail.has(x, y) && !m.zoomed:
		m.focused = true
	}
	return nil
}

// clickFooter presses the key that stands at the cell of the footer.
func (m *model) clickFooter(x int) []command {
	for _, h := range m.footerHints() {
		if x >= h.x && x < h.x+text.Width(h.words()) && h.press != "" {
			return m.press(keyPress{name: h.press, single: true})
		}
	}
	return nil
}

// clickHead sorts by the column whose head is at the cell; by the same one again the other way round.
func (m *model) clickHead(x int) {
	count, widths := m.columnsIn(m.layout().list.w)
	from := gutter
	for c := range count {
		if x >= from && x < from+widths[c] {
			m.reversed = c == m.sort && !m.reversed
			m.sort = c
			m.refill()
			return
		}
		from += widths[c] + 1
	}
}

// clickTab opens the tab whose name is at the cell of the detail's title; false if there is none.
func (m *model) clickTab(x int) bool {
	title := ansi.Strip(m.detailPane(m.layout().detail)[0])
	for t := range tabs {
		at := strings.LastIndex(title, t.String())
		if at < 0 {
			continue
		}
		from := text.Width(title[:at])
		if x >= from && x < from+text.Width(t.String()) {
			m.turn(int(t) - int(m.tab))
			return true
		}
	}
	return false
}

// clickDialog leaves a dialog, by its Cancel or beside it. Nothing else of it can be clicked: what it would do is
// confirmed with the keys that it names.
func (m *model) clickDialog(x, y int) {
	d, l := m.dialog, m.layout()
	if m.clock.Sub(d.opened) < dialogDeaf {
		return // the second half of a double click
	}
	box := m.dialogBox(l.body)
	at := y - (l.body.y + l.body.h - len(box))
	if at >= 0 && at < len(box) {
		line := ansi.Strip(box[at])
		from := strings.LastIndex(line, cancelButton)
		if from < 0 {
			return
		}
		if from = text.Width(line[:from]); x < from || x >= from+text.Width(cancelButton) {
			return
		}
	}
	m.dialog = nil
}

// wheel scrolls what is under it.
func (m *model) wheel(x, y, step int) {
	l := m.layout()
	switch {
	case m.dialog != nil:
		plan, foot := m.dialogLines(l.body.w)
		m.dialog.top = max(0, min(m.dialog.top+step, len(plan)-room(l.body, len(foot))))
	case m.help:
		m.helpTop += step // settle keeps it within the help
	case m.covered():
	case l.list.has(x, y):
		m.scrollList(step)
	case l.detail.has(x, y):
		m.scroll = max(0, min(m.scroll+step, len(m.detailLines(l.detail))-max(1, l.detail.h-1)))
	}
}

// scrollList moves what is in sight of the list. The cursor stays on its entry while that is in sight.
func (m *model) scrollList(step int) {
	rows := m.layout().list.h - 1
	m.top = max(0, min(m.top+step, len(m.rows)-rows))
	m.goTo(max(m.top, min(m.cursor, m.top+rows-1)))
}

// pointOf is a report of the mouse in the model's words; false for what means nothing here.
func pointOf(msg tea.MouseMsg) (pointing, bool) {
	p := pointing{x: msg.X, y: msg.Y}
	switch {
	case msg.Action != tea.MouseActionPress:
		return p, false
	case msg.Button == tea.MouseButtonLeft:
		p.what = clicked
	case msg.Button == tea.MouseButtonWheelUp:
		p.what = wheeledUp
	case msg.Button == tea.MouseButtonWheelDown:
		p.what = wheeledDown
	default:
		return p, false
	}
	return p, true
}

// tornMouse recognises reports of the mouse that a read has cut in two: Bubble Tea takes their parts for keys. A report
// is ESC [ < numbers M, or from an old terminal ESC [ M and three characters.
type tornMouse struct {
	part  mousePart
	left  int       // characters that an old report still lacks
	until time.Time // when the rest of it is not to be expected any more

	// An ESC at the end of a read may be the first byte of a report, or the key. It is the key when nothing has followed
	// for escFor.
	held   bool
	number int // tells this ESC from an earlier one
}

// mousePart is what has come of a report.
type mousePart uint8

const (
	noPart   mousePart = iota
	openPart           // ESC [
	bodyPart           // ESC [ < and perhaps numbers
	oldPart            // ESC [ M
)

const (
	tornFor = 500 * time.Millisecond // how long after one part of a report the next may come
	escFor  = 50 * time.Millisecond
)

// mouseRest is the end of a report whose beginning is not known any more.
var mouseRest = regexp.MustCompile(`^\[<|^<?[0-9]+;[0-9;]*[Mm]?$|^[0-9]+[Mm]$|^;[0-9;]+[Mm]?$`)

// isOldReport reports whether a message is what Bubble Tea makes of ESC [ M where the rest is still under way. It hands out
// its read buffer, in which the rest may stand by now: only the length may be looked at.
func isOldReport(msg tea.Msg) bool {
	v := reflect.ValueOf(msg)
	return v.IsValid() && v.Type().String() == "tea.unknownCSISequenceMsg" && v.Kind() == reflect.Slice && v.Len() == len("\x1b[M")
}

// drops reports whether a message is a part of a torn report, which must act on nothing.
func (t *tornMouse) drops(msg tea.Msg, now time.Time) bool {
	if now.After(t.until) {
		t.part = noPart
	}
	key, ok := msg.(tea.KeyMsg)
	if !ok {
		if isOldReport(msg) {
			t.goOn(oldPart, now)
			t.left = 3
			return true
		}
		return false
	}
	s := string(key.Runes)
	switch {
	case key.Paste || key.Type != tea.KeyRunes && key.Type != tea.KeySpace:
		return false
	case key.Alt && s == "[":
		t.goOn(openPart, now)
		return true
	case key.Alt:
		return false
	case t.held && strings.HasPrefix(s, "["):
		t.held = false
		t.goOn(openPart, now)
		t.takes(s[1:], now)
		return true
	case t.part != noPart:
		if t.takes(s, now) {
			return true
		}
	}
	return len(key.Runes) > 1 && mouseRest.MatchString(s)
}

func (t *tornMouse) goOn(part mousePart, now time.Time) { t.part, t.until = part, now.Add(tornFor) }

// takes reads on in a report; false if s is no more of it. What stands behind its end arrived with it and goes as well.
func (t *tornMouse) takes(s string, now time.Time) bool {
	for _, r := range s {
		switch {
		case t.part == openPart && r == '<':
			t.goOn(bodyPart, now)
		case t.part == openPart && r == 'M':
			t.goOn(oldPart, now)
			t.left = 3
		case t.part == bodyPart && (r == ';' || r >= '0' && r <= '9'):
			t.goOn(bodyPart, now)
		case t.part == bodyPart && (r == 'M' || r == 'm'):
			t.part = noPart
			return true
		case t.part == oldPart:
			if t.left--; t.left == 0 {
				t.part = noPart
				return true
			}
		default:
			t.part = noPart
			return false
		}
	}
	return true
}

// holds keeps an ESC back for escFor; false for any other key.
func (t *tornMouse) holds(key tea.KeyMsg) bool {
	if key.Type != tea.KeyEscape || key.Alt || key.Paste {
		return false
	}
	t.held = true
	t.number++
	return true
}

// takeHeld says whether an ESC is kept back, which is then the key.
func (t *tornMouse) takeHeld() bool {
	was := t.held
	t.held = false
	return was
}

// escDue says that nothing has followed an ESC in time.
type escDue struct{ number int }

// covered reports whether something is open over the body that only keys are for.
func (m *model) covered() bool { return m.actions != nil || m.palette != nil }
