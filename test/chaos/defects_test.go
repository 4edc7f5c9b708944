package chaos_test

// defects are the rows that are known to fail, with the defect's number. A row that is listed and holds fails the test,
// so that whoever mends a defect removes its rows.
var defects = map[string]string{
	"18": "D5",
	"19": "D4",
	"20": "D4",
	"28": "D1",
	"29": "D10",
	"30": "D1",
}

// defectOf returns the defect for which a row is known to fail on a store, or nothing.
func defectOf(number, store string) string {
	if d := defects[number+"/"+store]; d != "" {
		return d
	}

	return defects[number]
}
