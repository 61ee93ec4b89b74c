package tui

import (
	"github.com/charmbracelet/bubbles/textinput"
	tea "github.com/charmbracelet/bubbletea"
)

// field is one line that is typed.
type field struct{ line textinput.Model }

// newField is a line of at most limit characters: a paste can be anything.
func newField(value string, limit int) field {
	t := textinput.New()
	t.CharLimit = limit
	t.KeyMap.Paste.SetEnabled(false) // it would run a program to read the clipboard
	t.SetValue(value)
	t.CursorEnd()
	t.Focus()
	return field{line: t}
}

// press edits the line; keys that edit nothing are passed over.
func (f *field) press(k keyPress) {
	if msg, ok := teaKey(k); ok {
		f.line, _ = f.line.Update(msg) // its commands only blink a cursor that is drawn here
	}
}

func (f *field) value() string { return f.line.Value() }

// split returns what stands before and behind the cursor.
func (f *field) split() (before, behind string) {
	runes := []rune(f.line.Value())
	at := max(0, min(f.line.Position(), len(runes)))
	return string(runes[:at]), string(runes[at:])
}

// input is the line in which a filter is typed.
type input struct {
	field
	before   filter // what applied before; esc goes back to it
	selected ref    // the cursor's entry; it comes back with the rows
	err      error
}

// maxFilter bounds the filter, in characters.
const maxFilter = 200

func newInput(before filter, selected ref) *input {
	return &input{field: newField(before.text, maxFilter), before: before, selected: selected}
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
	i.field.press(k)
	return inputOpen
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
