// The points that are run.
#pragma once
#include <vector>

#include "tests/parity/run.h"

namespace shardline::parity {

const std::vector<Point>& pair_points();    // float64: every pair of axis values
std::vector<Point> single_points();         // float64: every axis value alone, with the settings that give it an effect
const std::vector<Point>& deep_points();    // float64: P, T, D >= 2, dropout and uneven sizes together
std::vector<Point> grid_points();           // float64: every D x P x T
std::vector<Point> choice_points();         // float64: every schedule with every choice of memory
std::vector<Point> optimizer_points();      // float64: P, T, D >= 2 with each optimizer except AdamW
const std::vector<Point>& task_points();    // float64: tasks with labels: every pair of axis values
std::vector<Point> head_points();           // float64: every head on every T, with every P and every sharding
std::vector<Point> some_task_points();      // float64: one for each task and way of padding, on 2, 4 and 8 ranks
std::vector<Point> matrix_points();         // all of these
const std::vector<Point>& traced_points();  // float64: traced modules: every pair of axis values
std::vector<Point> traced_task_points();    // float64: traced encoders of every task
std::vector<Point> traced_choice_points();  // float64: each with every schedule and every choice of memory
std::vector<Point> fp32_points();           // a sample of them in fp32
std::vector<Point> with_world(const std::vector<Point>& points, int world);  // the points for `world` ranks

// fp32, for ranks that share an accelerator: every schedule, every sharding, tensor parallelism and all of them.
std::vector<Point> device_points();

// Every precision on layouts of all kinds, with every sharding.
std::vector<Point> half_points();

// Runs the point as threads and compares it with one process.
Difference measure(const Point& point, const Tampering& tampering = {});

}  // namespace shardline::parity
