package tui

import "github.com/charmbracelet/bubbles/key"

// intent is what a person wants; keys are one way to say it.
type intent uint8

const (
	noIntent intent = iota
	intentDown
	intentUp
	intentFirst
	intentLast
	intentPageDown
	intentPageUp
	intentNextProblem
	intentPreviousProblem
	intentFilter
	intentSort
	intentReverse
	intentAll
	intentProblems
	intentFocus
	intentPreviousTab
	intentNextTab
	intentOpen
	intentZoom
	intentBack
	intentPause
	intentCopyPath
	intentCopyNonce
	intentCopyNext
	intentWaiting
	intentLitter
	intentMine
	intentMark
	intentMouse
	intentClaim
	intentAcquire
	intentRelease
	intentBreak
	intentSweep
	intentVerify
	intentActions
	intentPalette
	intentRescan
	intentExport
	intentHelp
	intentQuit
	intentInterrupt
	intentSuspend
)

// The intents that do nothing but move the cursor, or scroll.
const (
	firstMove = intentDown
	lastMove  = intentPreviousProblem
)

// binding ties keys to an intent, with the words that the help and the footer say of them.
type binding struct {
	key.Binding
	intent intent
	foot   string // the words in the footer; "": not there
	verb   string // what the palette calls it, in the words of the shell where it has any; "": not there
}

func bind(what intent, keys []string, shown, help string) binding {
	return binding{Binding: key.NewBinding(key.WithKeys(keys...), key.WithHelp(shown, help)), intent: what}
}

func (b binding) footed(s string) binding { b.foot = s; return b }
func (b binding) verbed(s string) binding { b.verb = s; return b }

// group is a part of the key map with its head in the help.
type group struct {
	title    string
	bindings []binding
}

// keyMap is the one map from keys to intents. The help, the footer and the verbs of the palette are made from it.
func keyMap() []group {
	return []group{
		{"Look", []binding{
			bind(intentDown, []string{"j", "down"}, "j", "down; in the detail: scroll"),
			bind(intentUp, []string{"k", "up"}, "k", "up"),
			bind(intentFirst, []string{"g", "home"}, "g", "first"),
			bind(intentLast, []string{"G", "end"}, "G", "last"),
			bind(intentPageDown, []string{"ctrl+d", "pgdown"}, "^d", "half a page down"),
			bind(intentPageUp, []string{"ctrl+u", "pgup"}, "^u", "half a page up"),
			bind(intentNextProblem, []string{"n"}, "n", "next problem"),
			bind(intentPreviousProblem, []string{"N"}, "N", "previous problem"),
			bind(intentOpen, []string{"enter"}, "enter", "the whole detail: the verdict and its evidence").verbed("why"),
			bind(intentZoom, []string{"z"}, "z", "the whole detail, and back").verbed("zoom"),
			bind(intentFocus, []string{"tab"}, "tab", "to the detail and back"),
			bind(intentPreviousTab, []string{"["}, "[", "the detail's previous tab"),
			bind(intentNextTab, []string{"]"}, "]", "the detail's next tab"),
			bind(intentBack, []string{"esc"}, "esc", "one step back; never quits"),
		}},
		{"Narrow down", []binding{
			bind(intentFilter, []string{"/"}, "/", "filter: words, "+filterKeys+" beat>30s, !word").footed("filter").verbed("filter"),
			bind(intentSort, []string{"s"}, "s", "sort by the next column").footed("sort").verbed("sort"),
			bind(intentReverse, []string{"S"}, "S", "sort the other way round").verbed("reverse"),
			bind(intentAll, []string{"1"}, "1", "all entries").verbed("all"),
			bind(intentProblems, []string{"!", "2"}, "!", "problems only, and back (also 2)").footed("problems").verbed("problems"),
			bind(intentWaiting, []string{"3"}, "3", "what is waited for, and by whom, and back").verbed("waiting"),
			bind(intentLitter, []string{"4"}, "4", "litter: tokens and temps only, and back").verbed("litter"),
			bind(intentMine, []string{"5"}, "5", "what this screen holds, and back").verbed("mine"),
			bind(intentMark, []string{" "}, "space", "mark, or not, and go on: B and R are for all that is marked").footed("mark").verbed("mark"),
			bind(intentPause, []string{"p"}, "p", "pause the picture; it counts what it hides").footed("pause").verbed("pause"),
		}},
		{"Take along", []binding{
			bind(intentCopyPath, []string{"y"}, "y", "copy the path (OSC 52)").verbed("path"),
			bind(intentCopyNonce, []string{"Y"}, "Y", "copy the claim id or writer epoch").verbed("nonce"),
			bind(intentCopyNext, []string{"c"}, "c", "copy the next step as a command").verbed("next"),
		}},
		{"Ask", []binding{
			bind(intentActions, []string{"a"}, "a", "what can be done with the entry, and why not").verbed("actions"),
			bind(intentVerify, []string{"v"}, "v", "look at the entry afresh, now").verbed("verify"),
			bind(intentRescan, []string{"ctrl+r"}, "^r", "look at everything again, at once").verbed("rescan"),
			bind(intentExport, []string{"ctrl+s"}, "^s", "export the picture as JSON and text, read-only, too: it changes no lock").verbed("export"),
			bind(intentPalette, []string{":"}, ":", "type a verb, as in the shell").footed("verbs"),
		}},
		{"Change: each opens a plan first, which wants y, or the name typed", []binding{
			bind(intentClaim, []string{"C"}, "C", "claim the lease; this screen holds and renews it").footed("claim").verbed("claim"),
			bind(intentAcquire, []string{"A"}, "A", "acquire the lock; this screen holds it and beats").footed("acquire").verbed("acquire"),
			bind(intentRelease, []string{"R"}, "R", "release what this screen holds").footed("release").verbed("release"),
			bind(intentBreak, []string{"B"}, "B", "break a lease or lock, or remove the token that blocks it").footed("break").verbed("break"),
			bind(intentSweep, []string{"W"}, "W", "sweep away dead tokens; in the litter view temps, too").footed("sweep").verbed("sweep"),
		}},
		{"This screen", []binding{
			bind(intentHelp, []string{"?"}, "?", "this help").footed("help").verbed("help"),
			bind(intentMouse, []string{"m"}, "m", "the mouse for this screen, or for the terminal's own selection").verbed("mouse"),
			bind(intentQuit, []string{"q"}, "q", "quit; asks when something is held").footed("quit").verbed("quit"),
			bind(intentInterrupt, []string{"ctrl+c"}, "^c", "quit; twice: at once"),
			bind(intentSuspend, []string{"ctrl+z"}, "^z", "suspend; refused while something is held").verbed("suspend"),
		}},
	}
}

// keyPress is one key as the terminal sent it.
type keyPress struct {
	name   string // "j", "ctrl+c", "enter", or the characters of a chunk
	text   string // the characters, for an input line
	single bool   // exactly one key, typed and not pasted
	pasted bool
}

func (k keyPress) String() string { return k.name }

// intentOf says what a key means in the list. What changes something is never meant by a chunk of characters,
// which can be a paste or a torn report of the mouse; moving about is.
func (m *model) intentOf(k keyPress) intent {
	for _, g := range m.keys {
		for _, b := range g.bindings {
			if k.single && key.Matches(k, b.Binding) {
				return b.intent
			}
		}
	}
	return noIntent
}
