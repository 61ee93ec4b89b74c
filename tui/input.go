package tui

import (
	"github.com/charmbracelet/bubbles/textinput"
	tea "github.com/charmbracelet/bubbletea"
)

// input is the line in which a filter is typed.
type input struct {
	line     textinput.Model
	before   filter // what applied before; esc goes back to it
	selected ref    // the cursor's entry; it comes back with the rows
	err      error
}

// maxFilter bounds the line, in characters: a paste can be anything.
const maxFilter = 200

func newInput(before filter, selected ref) *input {
	t := textinput.New()
	t.CharLimit = maxFilter
	t.KeyMap.Paste.SetEnabled(false) // it would run a program to read the clipboard
	t.SetValue(before.text)
	t.CursorEnd()
	t.Focus()
	return &input{line: t, before: before, selected: selected}
}

// What a key did to the line.
type inputResult uint8

const (
	inputOpen inputResult = iota
	inputDone
	inputGone
)

func (i *input) press(k keyPress) inputResult {
	switch k.name {
	case "enter":
		return inputDone
	case "esc":
		return inputGone
	}
	if msg, ok := teaKey(k); ok {
		i.line, _ = i.line.Update(msg) // its commands only blink a cursor that is drawn here
	}
	return inputOpen
}

func (i *input) value() string { return i.line.Value() }

// split returns what stands before and behind the cursor.
func (i *input) split() (before, behind string) {
	runes := []rune(i.line.Value())
	at := max(0, min(i.line.Position(), len(runes)))
	return string(runes[:at]), string(runes[at:])
}

// teaKey is the key as Bubbles wants it: characters, or one of the keys that edit a line.
func teaKey(k keyPress) (tea.KeyMsg, bool) {
	if k.text != "" {
		return tea.KeyMsg{Type: tea.KeyRunes, Runes: []rune(k.text)}, true
	}
	for _, t := range []tea.KeyType{
		tea.KeyLeft, tea.KeyRight, tea.KeyHome, tea.KeyEnd, tea.KeyBackspace, tea.KeyDelete,
		tea.KeyCtrlA, tea.KeyCtrlE, tea.KeyCtrlU, tea.KeyCtrlK, tea.KeyCtrlW, tea.KeyCtrlB, tea.KeyCtrlF, tea.KeyCtrlD, tea.KeyCtrlH,
		tea.KeyCtrlLeft, tea.KeyCtrlRight,
	} {
		if t.String() == k.name {
			return tea.KeyMsg{Type: t}, true
		}
	}
	return tea.KeyMsg{}, false
}
