package watch

// ownStorageRules are the last ways to AFT's storage, those of this system.
var ownStorageRules = [...]rule{
	{"LOCALAPPDATA", "cortexkit/aft"},
	{"", "AppData/Local/cortexkit/aft"},
}
