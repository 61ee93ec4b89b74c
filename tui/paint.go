package tui

import (
	"io"
	"strings"
	"unicode/utf8"

	"github.com/charmbracelet/lipgloss"
	"github.com/muesli/termenv"

	"holdfast/fslock/verdict"
	"holdfast/tui/text"
)

// tone is how a piece of text is meant; the theme says what that looks like. No tone is the only carrier of
// anything: a word or a symbol says the same.
type tone uint8

const (
	plain tone = iota
	faint
	strong
	good
	warn
	bad
	grave
	far
	odd
	tones
)

// paint is how everything is drawn: characters, widths and colours. It is immutable.
type paint struct {
	text.Style
	styles   [tones]ink
	reversed [tones]ink
	bare     bool // no attributes at all
}

// ink is what stands before and behind a piece of text, so that a terminal draws it in one way. To render each of the
// hundreds of pieces of a picture as a style would take a third of the time that the picture takes.
type ink struct{ before, behind string }

func inkOf(s lipgloss.Style) ink {
	const text = "text"
	before, behind, _ := strings.Cut(s.Render(text), text)
	return ink{before, behind}
}

func (k *ink) write(b *strings.Builder, s string) {
	b.WriteString(k.before)
	b.WriteString(s)
	b.WriteString(k.behind)
}

func newPaint(theme string, noColor, ascii bool) *paint {
	p := &paint{Style: text.Style{ASCII: ascii}, bare: noColor}
	// A renderer that is told everything never asks the terminal, which would stall on one that does not answer.
	r := lipgloss.NewRenderer(io.Discard)
	r.SetHasDarkBackground(true)
	r.SetColorProfile(termenv.ANSI)
	colours := [tones]lipgloss.TerminalColor{
		good: lipgloss.Color("2"), warn: lipgloss.Color("3"), bad: lipgloss.Color("1"),
		grave: lipgloss.Color("1"), far: lipgloss.Color("6"), odd: lipgloss.Color("5"),
	}
	theme, _ = ThemeOf(theme)
	switch {
	case noColor:
		r.SetColorProfile(termenv.Ascii)
	case theme == colourBlind:
		// The nearest that 256 colours have to Okabe and Ito's bluish green, orange, vermillion, sky blue and purple.
		r.SetColorProfile(termenv.ANSI256)
		colours = [tones]lipgloss.TerminalColor{
			good: lipgloss.Color("36"), warn: lipgloss.Color("214"), bad: lipgloss.Color("166"),
			grave: lipgloss.Color("166"), far: lipgloss.Color("74"), odd: lipgloss.Color("175"),
		}
	case theme == "mono":
		colours = [tones]lipgloss.TerminalColor{}
	}
	for t := range tones {
		s := r.NewStyle()
		if colours[t] != nil {
			s = s.Foreground(colours[t])
		}
		switch t {
		case faint:
			s = s.Faint(true)
		case strong, grave:
			s = s.Bold(true)
		default:
		}
		p.styles[t], p.reversed[t] = inkOf(s), inkOf(s.Reverse(true))
	}
	return p
}

// stateTone is the colour of a state.
func stateTone(s verdict.State) tone {
	switch s {
	case verdict.Live, verdict.Alive:
		return good
	case verdict.Late, verdict.Stopped:
		return warn
	case verdict.Remote:
		return far
	case verdict.Expired:
		return bad
	case verdict.Dead:
		return grave
	case verdict.Free, verdict.InUse, verdict.Litter:
		return faint
	case verdict.Unknown, verdict.Unreadable, verdict.Malformed:
		return odd
	default:
		return odd
	}
}

// glyph is a character that the screen draws itself.
type glyph uint8

const (
	ruleGlyph glyph = iota
	wallGlyph
	cursorGlyph
	upGlyph
	downGlyph
	caretGlyph
	markGlyph
)

func (p *paint) glyph(g glyph) string {
	const pretty, ascii = "─│▸▴▾│▪", "-|>^v_o"
	if p.ASCII {
		return ascii[g : g+1]
	}
	return string([]rune(pretty)[g])
}

// line builds one line of at most limit cells.
type line struct {
	p       *paint
	limit   int
	used    int
	reverse bool
	b       strings.Builder
	run     strings.Builder // text in one look that is not yet in b
	tone    tone            // of run
	turned  bool            // run is reversed
}

func (p *paint) line(limit int) *line { return &line{p: p, limit: max(0, limit)} }

// put adds text, cut to the room that is left. s is safe text.
func (l *line) put(t tone, s string) *line {
	s = l.p.Cut(s, l.limit-l.used)
	if s == "" {
		return l
	}
	l.used += text.Width(s)
	if t != l.tone || l.reverse != l.turned {
		l.flush()
		l.tone, l.turned = t, l.reverse
	}
	l.run.WriteString(s)
	return l
}

// flush writes what has one look, in as few escape sequences as that takes.
func (l *line) flush() {
	s := l.run.String()
	l.run.Reset()
	switch {
	case s == "":
	case l.p.bare || l.tone == plain && !l.turned:
		l.b.WriteString(s)
	case l.turned:
		l.p.reversed[l.tone].write(&l.b, s)
	default:
		l.p.styles[l.tone].write(&l.b, s)
	}
}

// cell adds text in exactly w cells, as far as there is room.
func (l *line) cell(t tone, s string, w int) *line {
	return l.put(t, l.p.Pad(s, min(w, l.limit-l.used)))
}

// to adds spaces up to the column.
func (l *line) to(column int) *line {
	if n := min(column, l.limit) - l.used; n > 0 {
		l.put(plain, strings.Repeat(" ", n))
	}
	return l
}

// right adds text at the right end, where it fits after what is there and a space.
func (l *line) right(t tone, s string) *line {
	w := text.Width(s)
	if l.used+1+w > l.limit {
		return l
	}
	return l.to(l.limit-w).put(t, s)
}

func (l *line) String() string {
	l.flush()
	return l.b.String()
}

// rule is a line across with a title, and a note at its end.
func (p *paint) rule(w int, title, note string) string {
	dash := p.glyph(ruleGlyph)
	l := p.line(w).put(faint, dash)
	if title != "" {
		room := w - 4
		if note != "" {
			room -= text.Width(note) + 3
		}
		l.put(plain, " ").put(strong, p.CutMiddle(title, max(room, min(w-4, 12)))).put(plain, " ")
	}
	end := ""
	if note != "" && l.used+text.Width(note)+3 <= w {
		end = " " + note + " "
	}
	if n := w - l.used - text.Width(end); n > 0 {
		tail := 0
		if end != "" {
			tail = 1
		}
		l.put(faint, strings.Repeat(dash, n-tail)).put(plain, end).put(faint, strings.Repeat(dash, tail))
	}
	return l.String()
}

// wrap breaks safe text into lines of at most w cells, between words where it can.
func (p *paint) wrap(s string, w int) []string {
	if w < 1 {
		return nil
	}
	var lines []string
	current := ""
	for word := range strings.FieldsSeq(s) {
		if current != "" && text.Width(current)+1+text.Width(word) <= w {
			current += " " + word
			continue
		}
		if current != "" {
			lines = append(lines, current)
		}
		for text.Width(word) > w {
			head := text.Head(word, w)
			if head == "" { // a wide character, which whoever prints the line cuts
				_, n := utf8.DecodeRuneInString(word)
				head = word[:n]
			}
			lines = append(lines, head)
			word = word[len(head):]
		}
		current = word
	}
	if current != "" {
		lines = append(lines, current)
	}
	return lines
}

// fit returns exactly h lines: cut at the end, or filled with empty ones.
func fit(lines []string, h int) []string {
	h = max(0, h)
	for len(lines) < h {
		lines = append(lines, "")
	}
	return lines[:h]
}
