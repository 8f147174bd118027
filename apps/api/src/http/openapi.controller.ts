import { Controller, Get } from '@nestjs/common';
import { openApiDocument } from './openapi.js';

@Controller('api/v1/openapi.json')
export class OpenApiController {
  private readonly document = openApiDocument();

  @Get()
  read() {
    return this.document;
  }
}
