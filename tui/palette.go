package tui

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"holdfast/fslock/verdict"
	"holdfast/tui/text"
)

// palette is the line in which a verb is typed. What it says is an intent that a key says, too, and is done the same
// way: what changes something opens a plan.
type palette struct {
	field
	at    int       // which of what is offered is chosen
	moved bool      // it was chosen by hand
	chunk time.Time // when several characters last came at once, which can be a paste
	err   error
}

var errPastedEnter = errors.New("press enter again: it came with a paste")

// maxVerbLine bounds the line, in characters: a verb and a filter.
const maxVerbLine = maxFilter + 20

// verbWidth is the cells of a verb and the space behind it.
const verbWidth = 10

// offered is one line that can complete what is typed.
type offered struct {
	line string // what the line becomes
	binding
}

func newPalette() *palette { return &palette{field: newField("", maxVerbLine)} }

// words are the verb that is typed, and what follows it; more: there is a space between them.
func (p *palette) words() (verb, arg string, more bool) {
	verb, arg, more = strings.Cut(strings.TrimLeft(p.value(), " "), " ")
	return verb, strings.TrimSpace(arg), more
}

// verbs are the bindings that have a verb, each verb once.
func (m *model) verbs() []binding {
	var list []binding
	for _, g := range m.keys {
		for _, b := range g.bindings {
			if b.verb != "" {
				list = append(list, b)
			}
		}
	}
	return list
}

// bindingOf is the binding of an intent.
func (m *model) bindingOf(what intent) (binding, bool) {
	for _, g := range m.keys {
		for _, b := range g.bindings {
			if b.intent == what {
				return b, true
			}
		}
	}
	return binding{}, false
}

// completions are what the line can become: verbs that begin with what is typed, then those that have it within; behind sort
// the columns.
func (m *model) completions() []offered {
	verb, arg, more := m.palette.words()
	var list, within []offered
	for _, b := range m.verbs() {
		switch {
		case more && b.verb == verb && b.intent == intentSort:
			for c := range columns {
				if name := strings.ToLower(c.String()); strings.HasPrefix(name, strings.ToLower(arg)) {
					list = append(list, offered{verb + " " + name, b})
				}
			}
		case more && b.verb == verb:
			list = append(list, offered{m.palette.value(), b})
		case more:
		case strings.HasPrefix(b.verb, verb):
			list = append(list, offered{b.verb, b})
		case strings.Contains(b.verb, verb):
			within = append(within, offered{b.verb, b})
		}
	}
	return append(list, within...)
}

// pressPalette is what keys do while a verb is typed. Nothing is done but by enter, pressed by hand: a paste, whatever is in
// it, only fills the line.
func (m *model) pressPalette(k keyPress) []command {
	p := m.palette
	if !k.single {
		p.chunk = m.clock
		m.typePalette(k)
		return nil
	}
	switch list := m.completions(); k.name {
	case "esc":
		m.palette = nil
	case "backspace":
		if p.value() == "" {
			m.palette = nil
			return nil
		}
		m.typePalette(k)
	case "up", "shift+tab", "ctrl+p":
		p.at, p.moved = max(0, p.at-1), true
	case "down", "ctrl+n":
		p.at, p.moved = max(0, min(p.at+1, len(list)-1)), true
	case "tab":
		if p.at < len(list) {
			line := list[p.at].line
			if takesWords(list[p.at].intent) && !strings.Contains(line, " ") {
				line += " "
			}
			p.field = newField(line, maxVerbLine)
			p.at, p.moved, p.err = 0, false, nil
		}
	case "enter":
		if !p.chunk.IsZero() && m.clock.Sub(p.chunk) < dialogDeaf {
			p.err = errPastedEnter // the end of a paste that the terminal does not mark as one
			return nil
		}
		return m.enterPalette(list)
	default:
		m.typePalette(k)
	}
	return nil
}

func (m *model) typePalette(k keyPress) {
	m.palette.press(k)
	m.palette.at, m.palette.moved, m.palette.err = 0, false, nil
}

// enterPalette does what is typed, or of what is offered that which is chosen. A line that cannot be done stays, with the
// reason in place.
func (m *model) enterPalette(list []offered) []command {
	p := m.palette
	verb, arg, _ := p.words()
	if verb == "" && !p.moved {
		m.palette = nil
		return nil
	}
	verbs := m.verbs()
	at := slices.IndexFunc(verbs, func(b binding) bool { return b.verb == verb })
	var b binding
	switch {
	case len(list) > 0 && (p.moved || at < 0):
		chosen := list[min(p.at, len(list)-1)]
		b = chosen.binding
		_, arg, _ = strings.Cut(strings.TrimLeft(chosen.line, " "), " ")
		arg = strings.TrimSpace(arg)
	case at >= 0:
		b = verbs[at]
	default:
		p.err = fmt.Errorf("no verb %s", verdict.Quote(verb))
		return nil
	}
	if err := m.prepare(b, arg); err != nil {
		p.err = err
		return nil
	}
	m.palette = nil
	if arg != "" && (b.intent == intentSort || b.intent == intentFilter) {
		return nil // prepare has done it
	}
	return m.do(b.intent)
}

// takesWords reports whether something can follow the verb.
func takesWords(what intent) bool {
	return what == intentSort || what == intentFilter || what == intentOpen || slices.Contains(actionIntents(), what) && what != intentSweep
}

// prepare does what stands behind a verb: a column, a filter, or the name of the entry that is meant.
func (m *model) prepare(b binding, arg string) error {
	switch {
	case arg == "":
	case !takesWords(b.intent):
		return fmt.Errorf("%s takes nothing behind it", b.verb)
	case b.intent == intentSort:
		for c := range columns {
			if strings.EqualFold(c.String(), arg) {
				m.sort = c
				m.refill()
				return nil
			}
		}
		return fmt.Errorf("no column %s", verdict.Quote(arg))
	case b.intent == intentFilter:
		f, err := parseFilter(arg)
		if err != nil {
			return err
		}
		m.filter = f
		m.refill()
	case len(m.marked) > 0 && (b.intent == intentBreak || b.intent == intentRelease):
		return fmt.Errorf("%s is for what is marked (%d); name nothing", b.verb, len(m.marked))
	default:
		at, err := m.findRow(arg)
		if err != nil {
			return err
		}
		m.goTo(at)
	}
	return nil
}

// maxOffered is how many lines of completions are shown.
const maxOffered = 10

// overlayPalette lays what can be typed over the lower end of the body.
func (m *model) overlayPalette(lines []string, r rect) []string {
	p, list := m.paint, m.completions()
	room := min(maxOffered, max(1, r.h-1))
	top := max(0, min(m.palette.at-room+1, len(list)-room))
	note := ""
	if len(list) > room {
		note = fmt.Sprintf("%d/%d", m.palette.at+1, len(list))
	}
	box := []string{p.rule(r.w, "verbs", note)}
	for i := top; i < min(len(list), top+room); i++ {
		o := list[i]
		l, mark := p.line(r.w), "  "
		if i == m.palette.at {
			mark = p.glyph(cursorGlyph) + " "
		}
		says, t := o.Help().Desc, plain
		if why := m.whyNotShort(o.intent, m.current()); why != "" {
			says, t = "no: "+p.Safe(why), faint
		}
		verb := o.verb
		if o.intent == intentSort && strings.Contains(o.line, " ") {
			verb, says = o.line, "sort by this column"
		}
		l.put(strong, mark).cell(strong, verb, max(verbWidth, text.Width(verb)+1)).cell(faint, o.Help().Key, 6)
		box = append(box, l.put(t, says).String())
	}
	return laidOver(lines, box, r.h)
}

// paletteLine is the line that is typed, at the foot of the screen.
func (m *model) paletteLine() string {
	p := m.paint
	end, t := "tab complete  enter do  esc leave", faint
	if m.palette.err != nil {
		end, t = p.Safe(m.palette.err.Error()), bad
	}
	before, behind := m.palette.split()
	before, behind = p.Safe(before), p.Safe(behind)
	if room := m.w/2 - 4; text.Width(before) > room {
		before = p.Ellipsis() + text.Tail(before, room-1)
	}
	l := p.line(m.w).put(plain, " ").put(strong, ":").put(plain, before).put(strong, p.glyph(caretGlyph)).put(plain, behind)
	return l.put(plain, "  ").put(t, end).String()
}
