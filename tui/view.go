package tui

import (
	"fmt"
	"strings"

	"holdfast/tui/text"
)

// view draws the screen: exactly h lines of at most w cells. It changes nothing.
func (m *model) view() string {
	return strings.Join(m.lines(), "\n")
}

func (m *model) lines() []string {
	if m.w == 0 || m.h == 0 {
		return nil
	}
	l := m.layout()
	if l.class == tiny {
		return m.card()
	}
	lines := make([]string, 0, m.h)
	lines = append(lines, m.headerLine(), m.headLine())
	for _, n := range m.notices()[:l.notices.h] {
		lines = append(lines, m.noticeLine(n))
	}
	lines = append(lines, m.body(l)...)
	if m.note.text != "" && m.input == nil && m.palette == nil && m.dialog == nil {
		notes := m.noteLines()
		return append(lines[:m.h-len(notes)], notes...)
	}
	return append(lines, m.footerLine())
}

func (m *model) body(l layout) []string {
	var lines []string
	switch {
	case m.help:
		lines = m.helpPane(l)
	case m.zoomed:
		lines = m.detailPane(l.detail)
	case l.class == compact:
		lines = append(m.listPane(l.list), m.verdictLine())
	case l.class == wide:
		wall := m.paint.line(wallWidth).put(faint, " "+m.paint.glyph(wallGlyph)).String()
		left, right := m.listPane(l.list), m.detailPane(l.detail) // left's lines fill their width
		for i := range left {
			lines = append(lines, left[i]+wall+right[i])
		}
		lines = append(lines, m.eventsPane(l.events)...)
	default:
		lines = append(m.listPane(l.list), m.detailPane(l.detail)...)
		lines = append(lines, m.eventsPane(l.events)...)
	}
	lines = fit(lines, l.body.h)
	switch {
	case m.dialog != nil:
		lines = m.overlay(lines, l.body)
	case m.palette != nil:
		lines = m.overlayPalette(lines, l.body)
	case m.actions != nil:
		lines = m.overlayActions(lines, l.body)
	}
	return lines
}

// card is what is shown where nothing fits.
func (m *model) card() []string {
	texts := []string{
		"holdfast: too small",
		fmt.Sprintf("needs %dx%d, is %dx%d", minWidth, minHeight, m.w, m.h),
		m.counts(),
		"q quits; actions are off",
	}
	if m.dialog != nil && m.dialog.kind == dialogQuit {
		texts = []string{"You hold " + m.heldWords() + ".", "enter release and quit", "esc stay"}
	}
	lines := make([]string, 0, m.h)
	for _, s := range texts {
		lines = append(lines, m.paint.line(m.w).put(plain, s).String())
	}
	return fit(lines, m.h)
}

func (m *model) counts() string {
	if m.snap == nil {
		return "looking"
	}
	return fmt.Sprintf("%s, %d stuck", text.Count(m.total, "entry"), len(m.stuck))
}
