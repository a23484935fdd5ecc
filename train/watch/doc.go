// Package watch shows and records how a training goes. Most of its functions make a [train.Hook],
// to be listed in [train.LoopConfig]:
//
//	Hooks: []train.Hook{
//		watch.Progress(os.Stderr),
//		watch.OpenJSONLines(filepath.Join(out, "log.jsonl")),
//		watch.TensorBoard(filepath.Join(out, "tensorboard")),
//		watch.Plot(filepath.Join(out, "loss.png")),
//	},
//
// [Progress] is for people: a bar on a terminal, lines elsewhere. [JSONLines] and [CSV] are logs
// with a record for each step and each evaluation; [OpenJSONLines] and [OpenCSV] keep them in a
// file that a resumed run goes on with. [TensorBoard] writes event files for the program of that
// name. [Plot] draws the loss curve while the run goes on, and [Draw] draws it from a log that
// [ReadJSONLines] has read:
//
//	log, err := watch.ReadJSONLines(file)
//	err = watch.Draw("loss.svg", log)
//
// A [Status] is a line for what comes before a training, such as a download.
//
// # Lifetimes
//
// A hook is of one [train.Loop], and opens its file when a run starts and closes it when the run
// ends. A loop that runs again goes on with it. What is written reaches the file within about a
// second, so that a run that is killed loses that much of its log and no more; a resumed run
// repairs a line that was cut short.
//
// # Errors and cost
//
// What cannot be written ends the run with an error that names the function and the file, if
// possible before the first step. All hooks together take some ten microseconds of a step, and none
// keeps more memory the longer a run lasts, apart from what Plot keeps of each evaluation.
package watch
