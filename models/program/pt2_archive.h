// An archive of torch.export.save (".pt2"): a program and its weights. No code of it is run, and no pickle is read.
#pragma once
#include <ATen/core/Tensor.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "models/files/tensor_file.h"
#include "models/program/graph.h"

namespace shardline {

struct Pt2Archive {
  std::string path;        // of the file; of a module of a C++ program, "model NAME"
  bool is_traced = false;  // it is of such a module
  Graph graph;             // inputs that are one parameter have one name
  std::shared_ptr<const TensorFile>
      weights;                            // the parameters by name; one that is tied under its first name in the graph
  std::map<std::string, bool> trainable;  // by name in `weights`
  std::map<std::string, std::vector<std::string>> names;  // by name in `weights`: its other names
  std::map<std::string, at::Tensor> constants;            // buffers and constants by name, views of the file

  // Begins messages: the key of the config that names the program, and the path.
  std::string place() const { return (is_traced ? "/model/config/model_type: " : "/model/path: ") + path; }
  // What makes another one.
  const char* verb() const { return is_traced ? "write" : "export"; }
};

// Throws a DataError that names file, place and rule for a file that contradicts itself or cannot be used here; every
// tensor is inside of its bytes, and every input of the graph that is no argument of the program has its tensor, of the
// dtype and the sizes that the graph says.
Pt2Archive read_pt2(const std::string& path);

}  // namespace shardline
