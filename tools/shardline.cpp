// The program: the library's commands without additions.
#include "include/shardline/shardline.h"

int main(int argc, char** argv) {
  return shardline::run(argc, argv);
}
